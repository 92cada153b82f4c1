#!/bin/sh
# browser.sh DIR VERSION INTEGRITY: installs a Chromium for the tests of the inference service's
# page into DIR: one program from the npm package @sparticuz/chromium, 70 MB to fetch and 220 MB
# on disk. INTEGRITY is the SHA-512 of the package's archive in npm's notation; an archive with
# another one is an error. If the package cannot be fetched, the script prints why and succeeds:
# the tests in a browser are skipped.
set -eu
dir=$1 version=$2 integrity=$3
without() {
  echo "browser: $1: tests in a browser are skipped where there is no other Chromium"
  exit 0
}
[ "$(uname -m)" = x86_64 ] || without "there is one for x86-64 only"
command -v npm >/dev/null && command -v node >/dev/null || without "npm and node are needed to fetch one"
mkdir -p "$(dirname "$dir")"
work=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
echo "fetching a headless browser (70 MB, once)"
npm pack --silent --ignore-scripts "@sparticuz/chromium@$version" >/dev/null || without "npm could not fetch it"
mv ./*.tgz archive.tgz
got=$(node -p '"sha512-" + require("crypto").createHash("sha512").update(require("fs").readFileSync("archive.tgz")).digest("base64")')
if [ "$got" != "$integrity" ]; then
  echo "browser: the archive of @sparticuz/chromium $version is not the pinned file (got $got, want $integrity):" \
    "it was not unpacked; check the registry of npm's configuration" >&2
  exit 1
fi
tar xzf archive.tgz
mkdir files
node -e '
  const {brotliDecompressSync: inflate} = require("zlib"), {readFileSync: read, writeFileSync: write} = require("fs");
  write("files/headless_shell", inflate(read("package/bin/chromium.br")));
  write("gl.tar", inflate(read("package/bin/swiftshader.tar.br")));
'
tar xf gl.tar -C files
chmod +x files/headless_shell
touch "files/$version"
cd - >/dev/null
rm -rf "$dir"
mv "$work/files" "$dir"
