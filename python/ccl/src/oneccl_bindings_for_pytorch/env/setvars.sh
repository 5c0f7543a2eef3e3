# Scripts source this for oneCCL; tandem needs no variables.
