#!/usr/bin/env bash
# Makes the Debian package `tandem` of the portable tree (portable_tree.py): one package for every
# release of Debian and Ubuntu, because the program brings its libraries and its C library.
#
#   packaging/pack_deb.sh TREE VERSION DIRECTORY
#
# Writes DIRECTORY/tandem_VERSION_amd64.deb. Times in it are SOURCE_DATE_EPOCH's, if that is set. The
# package has no scripts: installation, upgrade and removal are dpkg's lists of files alone.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
tree=$1 version=$2 out=$3
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
chmod 755 "$package"
mkdir "$package/DEBIAN"
cp -a "$tree" "$package/usr"
cat > "$package/DEBIAN/control" << CONTROL
Package: tandem
Version: $version
Architecture: amd64
Maintainer: the tandem maintainers <maintainers@tandem.invalid>
Installed-Size: $(du -sk --apparent-size "$tree" | cut -f1)
Recommends: ca-certificates
Suggests: mpich, openssh-client, libgloo0, libfabric1
Replaces: tandem-transports
Conflicts: tandem-transports
Section: science
Priority: optional
Description: fine-tunes transformers on many CPUs
 The program brings its libraries and its C library in /usr/lib/tandem, so one
 package serves every release of Debian and Ubuntu.
CONTROL
dpkg-deb --root-owner-group --build "$package" "$out/tandem_${version}_amd64.deb" > /dev/null
