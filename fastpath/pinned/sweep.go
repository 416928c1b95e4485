// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"
)

// sweepAfter is how long the folder of a dead process in another namespace is
// left alone. A successor that has not come by then finds its peers expired.
const sweepAfter = time.Hour

// sweep removes folders of network namespaces that are gone, so that the memory
// of their maps is not held until the machine starts again. A folder is removed
// only if no one holds it or did lately, and none of its links has a device any
// more. What cannot be looked at stays, and so does what is of this namespace:
// while the engine carries all packets, sessions have no link beside them.
func sweep(base string) {
	here, err := NamespaceCookie()
	if err != nil {
		return
	}
	folders, _ := filepath.Glob(filepath.Join(base, "*@*"))
	for _, dir := range folders {
		if strings.HasSuffix(dir, fmt.Sprintf("@%d", here)) || !abandoned(dir) {
			continue
		}
		if f, err := os.Open(dir); err == nil {
			if lock(f) == nil && abandoned(dir) {
				os.RemoveAll(dir)
			}
			f.Close()
		}
	}
}

// abandoned reports that no one has held a folder lately, and that none of its links has a device
// any more.
func abandoned(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && time.Since(info.ModTime()) >= sweepAfter && !leadsSomewhere(dir)
}

// Elsewhere reports that a folder belongs to another network namespace, where a successor may
// still come.
func (l Leftover) Elsewhere() bool {
	here, err := NamespaceCookie()
	return err == nil && l.Namespace != 0 && l.Namespace != here && !abandoned(l.Dir)
}

// leadsSomewhere reports whether a folder pins a link of a device that exists, or
// a filter, whose device it does not know.
func leadsSomewhere(dir string) bool {
	notes, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, n := range notes {
		if strings.HasPrefix(n.Name(), filterNote) {
			return true
		}
	}
	links, err := filepath.Glob(filepath.Join(dir, linksFolder, "*"))
	if err != nil {
		return true
	}
	for _, path := range links {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return true
		}
		index, err := LinkIndex(l)
		l.Close()
		if err != nil || index != 0 {
			return true
		}
	}
	return false
}
