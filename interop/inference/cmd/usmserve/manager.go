package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/coreos/go-systemd/v22/daemon"
)

// notify sends a state to systemd if it started the program with Type=notify.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot notify the service manager", "state", state, "error", err)
	}
}

// watch checks the server until ctx ends, so that changes of its readiness are logged. While live
// returns nil, it resets the watchdog of systemd if there is one.
func watch(ctx context.Context, log *slog.Logger, live func() error) {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("no watchdog: invalid environment", "error", err)
	}
	interval := time.Second
	if period > 0 {
		interval = min(interval, max(period/2, time.Millisecond))
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if live() == nil && period > 0 {
			notify(log, daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// memoryLimit returns the number of bytes that this process may use: the memory of the machine, or
// the limit of its control groups if that is lower.
func memoryLimit() (uint64, error) {
	bytes, err := memlimit.FromSystem()
	if group, groupErr := memlimit.FromCgroup(); groupErr == nil && group != 0 && (err != nil || group < bytes) {
		return group, nil
	}
	if err != nil || bytes == 0 {
		return 0, errors.New("the memory of this machine is not known; set -limit")
	}
	return bytes, nil
}
