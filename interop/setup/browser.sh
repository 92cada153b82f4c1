#!/bin/sh
# browser.sh DIR VERSION: a Chromium for the tests of the inference service's page, out of the
# npm package @sparticuz/chromium, into DIR: one program, 70 MB to fetch and 220 MB on disk.
# Where it cannot be had that is said, and the tests in a browser are skipped.
set -eu
dir=$1 version=$2
without() {
  echo "browser: $1: tests in a browser are skipped where there is no other Chromium"
  exit 0
}
[ "$(uname -m)" = x86_64 ] || without "there is one for x86-64 only"
command -v npm >/dev/null && command -v node >/dev/null || without "npm and node are needed to fetch one"
rm -rf "$dir"
mkdir -p "$dir"
cd "$dir"
echo "fetching a headless browser (70 MB, once)"
npm pack --silent "@sparticuz/chromium@$version" >/dev/null || without "npm could not fetch it"
tar xzf ./*.tgz
node -e '
  const {brotliDecompressSync: inflate} = require("zlib"), {readFileSync: read, writeFileSync: write} = require("fs");
  write("headless_shell", inflate(read("package/bin/chromium.br")));
  write("gl.tar", inflate(read("package/bin/swiftshader.tar.br")));
'
tar xf gl.tar
rm -rf gl.tar package ./*.tgz
chmod +x headless_shell
touch "$version"
