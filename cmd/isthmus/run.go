// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/daemon"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/role"
)

// RunCmd runs the instances of a configuration until it is told to stop.
type RunCmd struct{ ConfigFlag }

// Run runs until SIGINT or SIGTERM, or until SIGUSR2, which leaves established
// peers to the fast path until a successor goes on; a second signal ends it at once.
func (c *RunCmd) Run(to streams) error {
	settings, err := c.load()
	if err != nil {
		return err
	}
	return serve(settings, c.file(), c.load, to)
}

// serve runs a configuration until a signal ends it. load, if there is one, reads it
// again at SIGHUP; without it SIGHUP is a signal to end.
func serve(settings *config.Config, path string, load func() (*config.Config, error), to streams) error {
	collectLater()
	level := new(slog.LevelVar)
	level.Set(settings.Log.Level)
	log := slog.New(logHandler(to.err, settings.Log.Format, level))
	if err := ready(settings); err != nil {
		return err
	}
	instances, err := daemon.Build(roles, settings, log)
	if err != nil {
		return err
	}
	hangup, ends := make(chan os.Signal, 1), endSignals()
	if load != nil {
		ends = []os.Signal{os.Interrupt, syscall.SIGTERM}
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	ctx, stop := untilSignal(context.Background(), append(ends, syscall.SIGUSR2)...)
	defer stop()
	loop.Hurry()
	options := daemon.Options{
		Version: version, Roles: roles, Config: settings, Path: path, Instances: instances,
		Log: log, Level: level, Notify: daemon.Notify, Hangup: hangup, Load: load,
	}
	return daemon.New(options).Run(ctx)
}

// collectLater has the garbage collector leave the first second to the start, in which it would run twice, for a fifth of the
// time to a first packet: its first cycle is due at 16 MB, not 4. Who has chosen by GOGC is obeyed.
func collectLater() {
	if os.Getenv("GOGC") != "" {
		return
	}
	before := debug.SetGCPercent(400)
	time.AfterFunc(time.Second, func() { debug.SetGCPercent(before) })
}

// endSignals are those that end a program in the foreground: that of its terminal, too, when it
// closes, unless nohup has it ignored.
func endSignals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// untilSignal returns a context that the first of these signals ends. A second one, or the
// first after the parent has ended, has its usual effect, however soon it comes: it is handed
// on, for until the first is given up again both may be on their way here.
func untilSignal(parent context.Context, ends ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	ended, end := context.WithCancel(context.WithoutCancel(parent))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, ends...)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case s := <-signals:
				if ctx.Err() == nil {
					if s == syscall.SIGUSR2 {
						cancel(role.ErrLeave)
					}
					cancel(nil)
					continue
				}
				if s == syscall.SIGHUP {
					continue // of a terminal that closes kernel and shell tell both
				}
				signal.Stop(signals)
				if s == syscall.SIGUSR2 {
					s = syscall.SIGTERM // Go ends no program by the other
				}
				_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
				return
			case <-ended.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); end() }
}

// ready looks at the machine before anything is changed. Warnings are left to the
// roles, which log them when they start.
func ready(settings *config.Config) error {
	if socket := settings.Control.Socket; socket != "" && control.Alive(socket) {
		return fmt.Errorf("an isthmus is running already with the control socket %s: stop it, reload it (isthmus reload), or give this one another [control] socket", socket)
	}
	var failed []error
	for _, finding := range daemon.Examine(roles, settings) {
		if !finding.Warning {
			failed = append(failed, errors.New(finding.Text))
		}
	}
	return errors.Join(failed...)
}
