// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// subject is the Isthmus whose state is to outlive its processes.
type subject struct {
	instance
	section func() string // of the configuration, as it is to be now
	process *lab.Proc
}

// configure writes the configuration.
func (s *subject) configure() error { return s.instance.configure(s.section()) }

// launch starts a process, and does not wait for its service.
func (s *subject) launch(ctx context.Context) error {
	p, err := s.instance.launch(ctx, "isthmus")
	if err == nil {
		s.process = p
	}
	return err
}

// start starts a process, and waits until it serves.
func (s *subject) start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return running(ctx, s.process)
}

// end ends the process. Whoever is not killed ends with status 0.
func (s *subject) end(signal unix.Signal) error {
	if err := s.process.Signal(signal); err != nil {
		return fmt.Errorf("no process for signal %v: %w", signal, err)
	}
	select {
	case <-s.process.Done():
	case <-time.After(daemonStart):
		return errors.Join(fmt.Errorf("the process goes on %v after signal %v", daemonStart, signal), s.process.Stop())
	}
	if err := s.process.Wait(); err != nil && signal != unix.SIGKILL {
		return fmt.Errorf("after signal %v: %w", signal, err)
	}
	return nil
}

// runs reports whether the process has not ended.
func (s *subject) runs() bool {
	select {
	case <-s.process.Done():
		return false
	default:
		return true
	}
}

// reload has the process read its configuration again, as an operator does.
func (s *subject) reload(ctx context.Context) error {
	if err := s.configure(); err != nil {
		return err
	}
	_, err := s.node.Run(ctx, s.binary, "reload", "--socket", s.socket())
	return err
}

// descriptors is how many files the process has open.
func (s *subject) descriptors() (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.process.PID()))
	return len(list), err
}
