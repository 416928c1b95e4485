// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ReopenTUN makes a device again that someone has deleted, or moved to another network
// namespace, in that of the calling thread: under the same name and index, so that programs
// that know it go on. Its queues are used as before; a device that was left down is to be
// set up again. Whoever deletes it on purpose stops the process.
func ReopenTUN(queues []*TUN) error {
	for _, t := range queues {
		if !t.guard.enter() {
			return ErrClosed
		}
		defer t.guard.leave()
	}
	for i, t := range queues {
		if err := t.reopen(i == 0); err != nil {
			return err
		}
	}
	if first := queues[0]; first.persistent {
		if err := first.persist(); err != nil {
			return err
		}
	}
	for _, t := range queues {
		t.wake()
	}
	return nil
}

// reopen puts a new queue in the place of the old one. The first makes the device.
func (t *TUN) reopen(first bool) error {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return tunError(t.name, err)
	}
	defer unix.Close(fd)
	if first {
		if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, t.index); err != nil {
			return tunError(t.name, err)
		}
	}
	_, index, err := t.attach(fd, t.name)
	switch {
	case first && errors.Is(err, unix.EBUSY), err == nil && index != t.index:
		return fmt.Errorf("the name or the index %d of the TUN device %s is another's by now: remove that interface or restart isthmus", t.index, t.name)
	case err != nil:
		return err
	}
	// In one step: a reader or writer finds the old queue or the new one.
	if err := unix.Dup3(fd, t.guard.fd, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("cannot put the TUN device %s back: %w", t.name, err)
	}
	return nil
}
