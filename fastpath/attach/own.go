// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// ProgramIDs returns the kernel's numbers of these programs, and of those that a
// predecessor has left attached in the pins. A process without CAP_SYS_ADMIN may not
// ask for the names of programs, and knows its own by these.
func ProgramIDs(p fastpath.Programs, pins *pinned.Folder) []ebpf.ProgramID {
	var ids []ebpf.ProgramID
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
