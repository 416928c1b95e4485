// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// linkHook holds a program by a BPF link, which the kernel detaches when no one
// holds it: no process, and no pin.
type linkHook struct {
	link    link.Link
	path    string // of the pin, empty if there is none
	program uint32 // number of the program in it
}

// attachLink attaches by a link, XDP in native mode only.
func attachLink(s pinned.Spot, d *device, p *ebpf.Program) (*linkHook, error) {
	h := &linkHook{program: programID(p)}
	var err error
	switch s.Place {
	case pinned.PlaceXDP:
		// Without this flag the kernel would take generic mode in silence.
		h.link, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: d.index, Flags: link.XDPDriverMode})
	case pinned.PlaceIngress:
		h.link, err = link.AttachTCX(link.TCXOptions{Program: p, Interface: d.index, Attach: ebpf.AttachTCXIngress})
	case pinned.PlaceEgress:
		h.link, err = link.AttachTCX(link.TCXOptions{Program: p, Interface: d.index, Attach: ebpf.AttachTCXEgress})
	}
	if err != nil {
		return nil, explain(s, d, err)
	}
	return h, nil
}

func programID(p *ebpf.Program) uint32 {
	info, err := p.Info()
	if err != nil {
		return 0
	}
	id, _ := info.ID()
	return uint32(id)
}

func (h *linkHook) pin(path string) error {
	// What lies there is no link of a device that is wanted: those were inherited.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot replace a pinned link: %w", err)
	}
	if err := h.link.Pin(path); err != nil {
		return fmt.Errorf("cannot keep a link across a restart: %w", err)
	}
	h.path = path
	return nil
}

// renew puts another program into the link. Every packet meets the one or the
// other.
func (h *linkHook) renew(p *ebpf.Program) error {
	if err := h.link.Update(p); err != nil {
		return err
	}
	h.program = programID(p)
	return nil
}

func (h *linkHook) detach() error {
	var errs []error
	// The last reference would detach it too, but at a time of the kernel's choice.
	if err := h.link.Detach(); err != nil && !errors.Is(err, link.ErrNotSupported) {
		errs = append(errs, fmt.Errorf("cannot detach a program: %w", err))
	}
	if h.path != "" {
		if err := os.Remove(h.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot unpin a link: %w", err))
		}
	}
	return errors.Join(append(errs, h.link.Close())...)
}

func (h *linkHook) leave() error { return h.link.Close() }

// there asks the link, which others may detach as well.
func (h *linkHook) there() bool {
	index, err := pinned.LinkIndex(h.link)
	return err != nil || index != 0
}

func (h *linkHook) forget() error { return h.detach() }

// inherit opens the links that a predecessor left in the pins. Those whose device
// is gone are unpinned.
func inherit(pins *pinned.Folder) (map[pinned.Spot]*linkHook, error) {
	old := make(map[pinned.Spot]*linkHook)
	if pins == nil {
		return old, nil
	}
	entries, err := os.ReadDir(pins.LinksDir())
	if err != nil {
		return nil, fmt.Errorf("cannot list the links that were left: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(pins.LinksDir(), e.Name())
		place, _, _ := strings.Cut(e.Name(), "_")
		h, index, err := openLink(path)
		if err != nil {
			return nil, fmt.Errorf("cannot take over the link that was left at %s: %w", path, err)
		}
		if s := (pinned.Spot{Place: place, Index: index}); index != 0 && s.Name() == e.Name() {
			old[s] = h
			continue
		}
		if err := h.detach(); err != nil {
			return nil, err
		}
	}
	return old, nil
}

func openLink(path string) (*linkHook, int, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, 0, err
	}
	info, err := l.Info()
	if err != nil {
		l.Close()
		return nil, 0, err
	}
	index, err := pinned.LinkIndex(l)
	if err != nil {
		l.Close()
		return nil, 0, err
	}
	return &linkHook{link: l, path: path, program: uint32(info.Program)}, index, nil
}
