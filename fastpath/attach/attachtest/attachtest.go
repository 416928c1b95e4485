// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package attachtest attaches the programs of roles as a driver does.
package attachtest

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// Object is programs with their tables.
type Object interface {
	Programs() fastpath.Programs
	Adopted() bool
	Close() error
}

// Path is what is attached.
type Path[O Object] struct {
	// Load loads programs and tables; the pins are the instance's.
	Load func(pins *pinned.Folder) (O, error)
	// Kept reports that a successor takes over the tables.
	Kept bool
	// Steer are programs that are attached by tc beside the others, in every mode; may be nil.
	Steer func(O) fastpath.Programs
}

// EveryHook attaches the programs of a path by every hook, and lets successors put their own
// into their place.
func EveryHook[O Object](t *testing.T, p Path[O]) {
	for _, row := range []struct {
		name   string
		config attach.Config
	}{
		{"XDP", attach.Config{Mode: fastpath.ModeXDP}},
		{"tcx", attach.Config{Mode: fastpath.ModeTC}},
		{"clsact", attach.Config{Mode: fastpath.ModeTC, Classic: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			root, w := fastpathtest.MountBPFFS(t), fastpathtest.NewWire(t)
			before := map[ebpf.ProgramID]bool{}
			for generation := range 3 {
				w.Near.Do(t, func() error {
					g := p.begin(t, root, row.config)
					if g.object.Adopted() != (p.Kept && generation > 0) {
						t.Errorf("generation %d adopted tables: %t", generation, g.object.Adopted())
					}
					now := programs(t, g.reports())
					if want := len(g.attached); len(now) != want {
						t.Errorf("generation %d: %d programs are attached, want %d", generation, len(now), want)
					}
					for id := range now {
						if before[id] {
							t.Errorf("generation %d: program %d is that of before", generation, id)
						}
					}
					before = now
					g.end(t, generation < 2)
					return nil
				})
			}
		})
	}
}

// generation is one process of an instance.
type generation struct {
	object   Object
	pins     []*pinned.Folder
	attached []*attach.Attachment
}

func (p *Path[O]) begin(t *testing.T, root string, config attach.Config) *generation {
	t.Helper()
	g := &generation{}
	g.open(t, root, "test")
	object, err := p.Load(g.pins[0])
	if err != nil {
		t.Fatal(err)
	}
	g.object = object
	g.attach(t, object.Programs(), config)
	if p.Steer != nil {
		g.open(t, root, "test_steer")
		g.attach(t, p.Steer(object), attach.Config{Mode: fastpath.ModeTC, Classic: config.Classic})
	}
	return g
}

func (g *generation) open(t *testing.T, root, name string) {
	t.Helper()
	pins, err := pinned.OpenAt(root, name)
	if err != nil {
		t.Fatal(err)
	}
	g.pins = append(g.pins, pins)
}

// attach attaches with the pins that were opened last.
func (g *generation) attach(t *testing.T, p fastpath.Programs, config attach.Config) {
	t.Helper()
	config.Pins = g.pins[len(g.pins)-1]
	config.Name = []string{"test", "test_steer"}[len(g.attached)]
	a, err := attach.Attach(p, config)
	if err != nil {
		t.Fatal(err)
	}
	g.attached = append(g.attached, a)
}

// reports are those of all that is attached.
func (g *generation) reports() (list []attach.DeviceReport) {
	for _, a := range g.attached {
		list = append(list, a.Report()...)
	}
	return list
}

// end ends the process, which leaves what it has attached to the next one or takes it away.
func (g *generation) end(t *testing.T, leave bool) {
	t.Helper()
	for _, a := range g.attached {
		end := a.Close
		if leave {
			end = a.Leave
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	if err := g.object.Close(); err != nil {
		t.Error(err)
	}
	for _, pins := range g.pins {
		if err := pins.Close(); err != nil {
			t.Error(err)
		}
	}
}

// programs are those that are where the reports say.
func programs(t *testing.T, reports []attach.DeviceReport) map[ebpf.ProgramID]bool {
	t.Helper()
	found := map[ebpf.ProgramID]bool{}
	for _, r := range reports {
		device, err := netlink.LinkByIndex(r.Index)
		if err != nil {
			t.Fatal(err)
		}
		switch r.Hook {
		case attach.HookXDP:
			if x := device.Attrs().Xdp; x != nil && x.AttachMode == 1 { // by the driver
				found[ebpf.ProgramID(x.ProgId)] = true
			}
		case attach.HookTCX:
			q, err := link.QueryPrograms(link.QueryOptions{Target: r.Index, Attach: ebpf.AttachTCXIngress})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range q.Programs {
				found[p.ID] = true
			}
		case attach.HookClassic:
			filters, err := netlink.FilterList(device, netlink.HANDLE_MIN_INGRESS)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range filters {
				if f, ok := f.(*netlink.BpfFilter); ok {
					found[ebpf.ProgramID(f.Id)] = true
				}
			}
		}
	}
	return found
}
