// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/announce"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// owner is the configuration file, in full: who starts with the same is the successor of who has ended with it.
func owner(path string) string {
	if path == "" {
		return ""
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return whole
}

// announce runs the announcer in the group. The context that it returns is that of
// the instances: it ends when their prefixes have been withdrawn, for the same
// cause as ctx.
func (d *Daemon) announce(ctx context.Context, group *errgroup.Group) context.Context {
	if d.announcer == nil {
		return ctx
	}
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	group.Go(func() error {
		err := d.announcer.Run(ctx)
		if err != nil {
			end(err)
			return fmt.Errorf("announce: %w", err)
		}
		end(context.Cause(ctx))
		return nil
	})
	return serving
}

// UndoTime is what instances may take, once they end, to undo and to keep what they have.
const UndoTime = 15 * time.Second

// stopping is the last state. A drain that the configuration wants may last beyond the stop timeout
// of a unit, and who is killed in it undoes nothing: it moves that as far (sd_notify(3)), no further.
func (d *Daemon) stopping(ctx context.Context) string {
	if d.announcer == nil || role.Leaving(ctx) {
		return stateStopping
	}
	return fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", stateStopping, (d.announcer.DrainTime() + UndoTime).Microseconds())
}

// Drain implements control.Source.
func (d *Daemon) Drain(instance string, on bool) (control.Drained, error) {
	var names []string
	var err error
	if d.announcer != nil {
		names, err = d.announcer.Drain(instance, on)
	}
	switch {
	case len(names) > 0:
		return control.Drained{Instances: names}, err
	case instance == "":
		return control.Drained{}, fmt.Errorf("%w: nothing is announced, so nothing can be drained; set announce = true in a section that has this key", control.ErrNoInstance)
	}
	return control.Drained{}, fmt.Errorf("%w: nothing is announced for %q; isthmus status shows what is", control.ErrNoInstance, instance)
}

// addAnnouncements adds to a status what is announced, and to whom.
func (d *Daemon) addAnnouncements(status *control.Status) {
	if d.announcer == nil {
		return
	}
	for i := range status.Instances {
		if a, ok := d.announcer.Announcement(status.Instances[i].Name); ok {
			status.Instances[i].Announcement = &a
		}
	}
	status.Neighbors = d.announcer.Neighbors()
}

// reloadAnnounce applies the section, and returns the keys that wait for a
// restart.
func (d *Daemon) reloadAnnounce(next *config.Config) ([]string, error) {
	if d.announcer == nil {
		_, keys := config.Reload(d.made.Announce, next.Announce)
		return keys, nil
	}
	keys, err := d.announcer.Reload(next.Announce)
	if err != nil {
		return nil, fmt.Errorf("announce keeps its old settings: %w", err)
	}
	return keys, nil
}

// metered are the instances, with the values of the announcer beside their own.
func (d *Daemon) metered() []role.Instance {
	if d.announcer == nil {
		return d.Instances
	}
	list := make([]role.Instance, len(d.Instances))
	for i, instance := range d.Instances {
		list[i] = metered{instance, d.announcer}
	}
	return list
}

// metered is an instance whose prefixes may be announced.
type metered struct {
	role.Instance
	announcer *announce.Announcer
}

// Collect implements [role.Instance].
func (m metered) Collect(emit func(role.Metric)) {
	m.Instance.Collect(emit)
	if a, ok := m.announcer.Announcement(m.Name()); ok {
		value := 0.0
		if a.State == role.StateAnnounced {
			value = 1
		}
		emit(role.Level("announced", "1 while the prefixes are announced to routers.", value))
	}
}

// announce checks what announcing needs of the machine.
func (m machine) announce(c *config.Config) error {
	a := &c.Announce
	if a.Method == config.AnnounceRoute {
		return m.privilege(unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "set the routes that announce prefixes")
	}
	var errs []error
	for i := range a.Neighbors {
		_, err := a.Neighbors[i].Password()
		errs = append(errs, err)
	}
	for _, at := range c.SpeakerSockets() {
		errs = append(errs, tcpFree(at))
	}
	return errors.Join(errs...)
}
