// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// here are the programs that instances of this process have to attach, with whose they are: one
// instance is no stranger to another, and the kernel tells names to few.
var here = struct {
	sync.Mutex
	whose map[ebpf.ProgramID]string
}{whose: map[ebpf.ProgramID]string{}}

// Here returns the numbers of these programs.
func Here() []ebpf.ProgramID {
	here.Lock()
	defer here.Unlock()
	return slices.Collect(maps.Keys(here.whose))
}

// recognize notes whose a program is, if it is one of these.
func (p *program) recognize() {
	here.Lock()
	defer here.Unlock()
	p.whose = here.whose[ebpf.ProgramID(p.id)]
}

func (a *Attachment) register(whose string) {
	here.Lock()
	defer here.Unlock()
	for _, id := range programIDs(a.programs) {
		here.whose[id] = whose
	}
}

func (a *Attachment) unregister() {
	here.Lock()
	defer here.Unlock()
	for _, id := range programIDs(a.programs) {
		delete(here.whose, id)
	}
}

// ProgramIDs returns the kernel's numbers of these programs, and of those that a
// predecessor has left attached in the pins. A process without CAP_SYS_ADMIN may not
// ask for the names of programs, and knows its own by these.
func ProgramIDs(p fastpath.Programs, pins *pinned.Folder) []ebpf.ProgramID {
	ids := programIDs(p)
	if pins == nil {
		return ids
	}
	entries, err := os.ReadDir(pins.LinksDir())
	if err != nil {
		return ids // there is none
	}
	for _, e := range entries {
		if h, _, err := openLink(filepath.Join(pins.LinksDir(), e.Name())); err == nil {
			ids = append(ids, ebpf.ProgramID(h.program))
			h.link.Close()
		}
	}
	return ids
}

func programIDs(p fastpath.Programs) (ids []ebpf.ProgramID) {
	for _, program := range []*ebpf.Program{p.XDP, p.Ingress, p.Egress, p.HostIngress} {
		if program == nil {
			continue
		}
		if info, err := program.Info(); err == nil {
			if id, ok := info.ID(); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
