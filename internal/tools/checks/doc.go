// Package checks tests the shell scripts of `make check`, `make check-long`, `make test-pythons` and
// `make test-versions`, which are in this directory. It contains only tests.
package checks
