# Stands in for the settings of oneCCL's bindings, which the guides source: tandem's communication is built in.
echo "tandem image: setvars.sh sets nothing: tandem brings its own communication" >&2
