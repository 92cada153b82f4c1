package usmarray

// Version is the release of this module, as in its tags without the "v"
// (semantic versioning, https://semver.org). The Python module shows it as
// usmbridge.__version__.
const Version = "0.1.0"
