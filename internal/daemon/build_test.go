// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/role"
)

// TestConnect has a follower told of the changes of each source.
func TestConnect(t *testing.T) {
	a, b, follower := &mover{}, &mover{}, &follower{}
	connect([]role.Instance{a, follower, b})
	for i, m := range []*mover{a, b} {
		m.tell(event.AddressChange{Instance: []string{"a", "b"}[i]})
	}
	if diff := cmp.Diff([]string{"a", "b"}, follower.told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// mover is a source, follower one that follows; they are nothing else.
type mover struct {
	role.Instance
	tell func(event.AddressChange)
}

func (m *mover) OnAddressChange(f func(event.AddressChange)) { m.tell = f }

type follower struct {
	role.Instance
	told []string
}

func (f *follower) AddressChanged(e event.AddressChange) { f.told = append(f.told, e.Instance) }
