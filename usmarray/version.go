package usmarray

// Version is the release of this module, as in its tags without the "v" (https://semver.org). In Python it
// is usmbridge.__version__.
const Version = "0.1.0"
