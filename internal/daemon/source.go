// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Status implements control.Source.
func (d *Daemon) Status() control.Status {
	status := control.Status{
		Version: d.Version, PID: os.Getpid(), Started: d.started, Config: d.Path,
		Instances: make([]control.Instance, 0, len(d.Instances)),
	}
	for _, instance := range d.Instances {
		status.Instances = append(status.Instances, snapshot(instance))
	}
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
