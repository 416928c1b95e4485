// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// Status implements control.Source.
func (d *Daemon) Status() control.Status {
	status := control.Status{
		Version: d.Version, PID: os.Getpid(), Started: d.started, Config: d.Path,
		Instances: make([]control.Instance, 0, len(d.Instances)),
	}
	for _, instance := range d.metered() {
		status.Instances = append(status.Instances, snapshot(instance))
	}
	d.addAnnouncements(&status)
	return status
}

func snapshot(instance role.Instance) control.Instance {
	one := control.Instance{
		Name: instance.Name(), Role: instance.Role(),
		Values: map[string]float64{}, Dropped: map[string]uint64{},
	}
	select {
	case <-instance.Ready():
		one.Ready = true
	default:
	}
	state, err := json.Marshal(instance.Status())
	if err != nil {
		state, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	one.State = state
	instance.Collect(func(m role.Metric) {
		switch {
		case m.Name == role.DroppedName:
			one.Dropped[m.Reason] += uint64(m.Value)
		case m.Verdict != "":
			one.Values[m.Name+"_"+m.Verdict+"_"+m.Reason] += m.Value
		case m.Reason != "":
			one.Values[m.Name+"_"+m.Reason] += m.Value
		default:
			one.Values[m.Name] += m.Value
		}
	})
	return one
}

// Peers implements control.Source.
func (d *Daemon) Peers(name string, limit int) (control.PeerList, error) {
	for _, instance := range d.Instances {
		if instance.Name() != name {
			continue
		}
		lister, ok := instance.(role.PeerLister)
		if !ok {
			return control.PeerList{}, fmt.Errorf("%w: the %s %q keeps no peers", control.ErrNoInstance, instance.Role(), name)
		}
		peers, total := lister.Peers(limit)
		return control.PeerList{Instance: name, Total: total, Peers: peers}, nil
	}
	return control.PeerList{}, fmt.Errorf("%w: %q is not among the running ones, which isthmus status lists", control.ErrNoInstance, name)
}

// Trace implements control.Source.
func (d *Daemon) Trace(ctx context.Context, name string, s trace.Sampling, emit func(*trace.Sample)) error {
	var traced []role.Tracer
	for _, instance := range d.Instances {
		if tracer, ok := instance.(role.Tracer); ok && (name == "" || name == instance.Name()) {
			traced = append(traced, tracer)
		}
	}
	if len(traced) == 0 {
		return fmt.Errorf("%w: nothing that can be traced is named %q; isthmus status lists what runs", control.ErrNoInstance, name)
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, tracer := range traced {
		group.Go(func() error {
			return tracer.Trace(ctx, s, func(sample *trace.Sample) {
				mu.Lock()
				defer mu.Unlock()
				emit(sample)
			})
		})
	}
	return group.Wait()
}

// Ask implements control.Source.
func (d *Daemon) Ask(q control.Question) (any, error) {
	i, err := d.pick(q)
	if err != nil {
		return nil, err
	}
	return d.Roles.Ask(i, false, q.What, q.Arguments)
}

// Order implements control.Source.
func (d *Daemon) Order(q control.Question) (any, error) {
	i, err := d.pick(q)
	if err != nil {
		return nil, err
	}
	answer, err := d.Roles.Ask(i, true, q.What, q.Arguments)
	if nothing, ok := answer.(role.Emptiness); err == nil && (!ok || nothing.Nothing() == "") {
		d.Log.Info("changed by an order", "role", q.Role, "instance", i.Name(), "what", q.What, "arguments", d.Roles.ForLog(i, q.What, q.Arguments))
	}
	return answer, err
}

// pick finds the instance that is meant: that of the name, or the only one of the role.
func (d *Daemon) pick(q control.Question) (found role.Instance, err error) {
	n := 0
	for _, i := range d.Instances {
		if i.Role() == q.Role && (q.Instance == "" || q.Instance == i.Name()) {
			found, n = i, n+1
		}
	}
	switch {
	case n == 1:
		return found, nil
	case n > 1:
		return found, fmt.Errorf("%w: there are several of the role %s: name one (-i NAME), isthmus status lists them", control.ErrNoInstance, q.Role)
	case q.Instance != "":
		return found, fmt.Errorf("%w: no %s is named %q; isthmus status lists what runs", control.ErrNoInstance, q.Role, q.Instance)
	}
	return found, fmt.Errorf("%w: no %s is running; isthmus status lists what runs", control.ErrNoInstance, q.Role)
}
