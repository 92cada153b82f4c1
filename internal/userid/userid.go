// Package userid compares user ids that the kernel reports with the user of this process.
package userid

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// CheckOwn returns an error unless a user id that the kernel reported, of a file or of the process on the
// other side of a socket, is the effective user of this process.
func CheckOwn(uid uint32) error {
	own := os.Geteuid()
	if int64(uid) != int64(own) {
		return fmt.Errorf("this process is of user %d", own)
	}
	return CheckOne(uid)
}

// CheckOne returns an error if a user id that the kernel reported can stand for several users. In a user
// namespace the kernel reports the overflow uid for every user that has no id there. A process with that
// id is distinguished from them only in a namespace with an id for every user.
func CheckOne(uid uint32) error {
	if uid == overflow() && !mapsAll(read("/proc/self/uid_map")) {
		return fmt.Errorf("in the user namespace of this process user %d stands for all users without an id there; "+
			"run it as a user with an id of its own", uid)
	}
	return nil
}

// overflow returns the id that stands for users without one.
func overflow() uint32 {
	if n, err := strconv.ParseUint(string(bytes.TrimSpace(read("/proc/sys/kernel/overflowuid"))), 10, 32); err == nil {
		return uint32(n)
	}
	return 65534 // the kernel's default
}

// allUsers is the number of valid user ids.
const allUsers = 1<<32 - 1

// mapsAll reports whether a uid_map (user_namespaces(7)) has an id for every user. Its ranges do not
// overlap.
func mapsAll(uidMap []byte) bool {
	sum := uint64(0)
	for line := range bytes.Lines(uidMap) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			return false
		}
		n, err := strconv.ParseUint(string(f[2]), 10, 32)
		if err != nil {
			return false
		}
		sum += n
	}
	return sum == allUsers
}

// read returns nothing for a file that cannot be read.
func read(file string) []byte {
	b, _ := os.ReadFile(file)
	return b
}
