//go:build unix

package main

import "strings"

// byHand is how a line calls the program that hosts Python; check-long has a build of its own.
const byHand = "../../../bin/usmpython"

// command is a stage that is a line of shell, run in the root with HUNT seconds in its
// environment. It is run whole, with nothing of ours beside it.
func command(name, line, count string) *stage {
	s := &stage{Name: name, Command: line, Alone: true}
	if strings.Contains(line, byHand) {
		s.Build = plainHost
	}
	s.Args = func(r *runner, _ float64) []string {
		here := strings.NewReplacer("go test ", goCommand()+" test ", byHand, r.built(plainHost))
		return []string{"bash", "-o", "pipefail", "-c", here.Replace(line)}
	}
	if count != "" {
		s.Read = counting(count)
	}
	return s
}

const (
	// With -v, each test and each of its cases.
	goTests     = `^\s*--- PASS: `
	killed      = `\b(\d+) processes killed`
	soaked      = `: (\d+) exchanges of `
	pythonsTest = `\b(\d+) passed\b`
)

// commands are the stages that are no targets: a new one is a line here, and its name begins
// with the word by which its surface knows it.
func commands() []*stage {
	return []*stage{
		command("failing allocations and interrupts",
			"cd interop/pymodule/tests && USMBRIDGE_HUNT=1 ../../../bin/usmpython -m pytest -q -s -p no:cacheprovider -k 'allocations or interrupts' test_scarce.py", `(\d+) (?:allocations failed|interrupts hit)`),
		command("failing calls and allocations of C", "USMBRIDGE_HUNT=1 go test -count=1 -timeout 240m -v ./interop/internal/memcheck", `(\d+) calls and allocations failed`),
		command("failing calls of the SYCL library", "go test -count=1 -v -run Sweep ./usmarray", `: (\d+) (?:faults|submissions),`),
		command("failing disks and addresses", "go test -count=1 -v -run 'DiskFull|EveryAddressLimit' ./interop/npy ./interop/safetensors ./memmgr", `: (\d+) (?:writes failed|requests refused)`),
		command("long soak from Go", "USMBRIDGE_SOAK=10000000 go test -count=1 -timeout 0 -v -run '^TestSoak$' ./interop/pymodule", soaked),
		command("long soak from Python",
			"cd interop/pymodule/tests && USMBRIDGE_SOAK=10000000 ../../../bin/usmpython -m pytest -q -s -p no:cacheprovider -k test_soak test_soak.py", pythonsTest),
		command("long stopped server", "cd interop/flight && USMBRIDGE_HUNT=1 go test -count=1 -timeout 60m -v -run StoppedServer .", goTests),
		command("long killed peers", "USMBRIDGE_HUNT=1000 go test -count=1 -timeout 60m -v -run KilledAtRandom ./interop/share", killed),
		command("long killed Python processes",
			"cd interop/pymodule/tests && USMBRIDGE_HUNT=1 ../../../bin/usmpython -m pytest -q -s -p no:cacheprovider -k killed_at_random test_processes.py", killed),
		command("long openings", "USMBRIDGE_HUNT=1 go test -count=1 -timeout 60m -v -run Flat ./interop/share", `: (\d+) openings: `),
		command("long schedules of queues", "USMBRIDGE_SCHEDULES=1000000 go test -count=1 -timeout 2h -v -run 'TestFakeSchedules$' ./memmgr", `: (\d+) schedules in `),
		command("long load of a service", "go run ./memmgr/membench -endure 1h", `^endure: (\d+) requests`),
		command("long waits", "USMBRIDGE_HUNT=$HUNT go test -count=1 -timeout 120m -v -run NobodyWaitsForEver ./memmgr", goTests),
		command("tests address sanitizer", "make asan ALL=1", `^ok\s`),
		command("tests cgocheck2", "make cgocheck ALL=1", `^ok\s`),
		command("tests UBSan", "make ubsan", `^ok\s`),
		command("tests GOGC=1 clobberfree", "GOGC=1 GODEBUG=clobberfree=1 go test -count=1 -timeout 120m ./...", `^ok\s`),
		command("tests race, five times", "go test -race -count=5 -timeout 240m ./...", `^ok\s`),
	}
}
