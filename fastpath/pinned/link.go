// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf/link"
)

// Spot is one place on one device.
type Spot struct {
	Place string
	Index int
}

// Places, by which links and filters are found again.
const (
	PlaceXDP     = "xdp"
	PlaceIngress = "ingress"
	PlaceEgress  = "egress"
)

// Name is the file name of the link there.
func (s Spot) Name() string { return fmt.Sprintf("%s_%d", s.Place, s.Index) }

// LinkPath returns where the link in a spot is pinned.
func (p *Folder) LinkPath(s Spot) string { return filepath.Join(p.LinksDir(), s.Name()) }

// LinksDir is the folder of the links.
func (p *Folder) LinksDir() string { return filepath.Join(p.dir, linksFolder) }

// LinksOf lists the paths of links that an instance has pinned in this network namespace,
// be it alive or not.
func LinksOf(instance string) (paths []string) {
	for _, p := range Peek(instance) {
		found, _ := filepath.Glob(filepath.Join(p.LinksDir(), "*"))
		paths = append(paths, found...)
	}
	return paths
}

// LinkIndex returns the interface that a link is attached to, 0 if it is gone.
func LinkIndex(l link.Link) (int, error) {
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex), nil
	}
	if t := info.TCX(); t != nil {
		return int(t.Ifindex), nil
	}
	return 0, fmt.Errorf("a link of another kind is pinned there")
}
