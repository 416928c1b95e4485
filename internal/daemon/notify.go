// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// States that a service manager understands (sd_notify(3)).
const (
	stateReady     = "READY=1"
	stateReloading = "RELOADING=1"
	stateStopping  = "STOPPING=1"
)

// Notify tells the service manager that started this process about its state.
// Without a service manager it does nothing. Under Type=notify-reload a
// reloading state must carry the monotonic time, which is added here.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if state == stateReloading {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return fmt.Errorf("read the monotonic clock: %w", err)
		}
		state += fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Nano()/1000)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("reach the service manager: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
