# Find runs this on each candidate interpreter, of any version. It prints one line of JSON.
import sys
sys.path = [p for p in sys.path if p]  # import nothing from the working directory
import json
import os
import sysconfig

var = sysconfig.get_config_var
base = getattr(sys, "base_prefix", sys.prefix)
short = "%d.%d" % sys.version_info[:2]
soname = var("INSTSONAME") or ""
names = [n for n in (soname, var("LDLIBRARY") or "") if ".so" in n]
names += ["libpython%s%s.so.1.0" % (short, getattr(sys, "abiflags", "")),
          "libpython%s.so.1.0" % short, "libpython%s.so" % short]
dirs = [var("LIBDIR"), os.path.join(base, "lib"),
        os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(sys.executable))), "lib")]
if base in ("/usr", "/usr/local"):  # a distribution's Python, whose libpython is a package of its own
    dirs += ["/usr/local/lib", "/usr/lib64", "/usr/lib"]
dirs = [d for d in dirs if d]
multiarch = var("MULTIARCH")
if multiarch:
    dirs = [p for d in dirs for p in (d, os.path.join(d, multiarch))]
mapped = []
try:
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and os.path.basename(path[0]).startswith("libpython" + short) and path[0] not in mapped:
                mapped.append(path[0])
except (OSError, IOError):
    pass
print(json.dumps({
    "executable": sys.executable,
    "version": list(sys.version_info[:3]),
    "implementation": getattr(getattr(sys, "implementation", None), "name", "unknown"),
    "prefix": sys.prefix,
    "base_prefix": base,
    "purelib": sysconfig.get_path("purelib"),
    "instsoname": soname,
    "free_threaded": bool(var("Py_GIL_DISABLED")),
    "mapped": mapped,
    "libraries": [os.path.join(d, n) for n in names for d in dirs],
}))
