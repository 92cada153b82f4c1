//go:build !unix

package transfer

import "errors"

const nonblock = 0

var errFault = errors.New("bad address")
