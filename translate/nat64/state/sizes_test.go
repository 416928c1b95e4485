// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"strings"
	"testing"
)

// TestMemoryBudget holds what a session with its binding takes against the budget.
func TestMemoryBudget(t *testing.T) {
	z := Sizes{Sessions: 1 << 20, Subscribers: 1 << 16, Addresses: 16, BlockWords: 8, SubscriberLength: 64}
	bytes, all := z.SessionBytes(), 0
	for _, s := range z.Slabs() {
		t.Logf("%-16s %8d of %4d bytes", s.Name, s.Records, s.RecordSize)
		all += s.Bytes()
	}
	t.Logf("%.1f bytes a session with its binding; %.1f MiB in all, with %d clients and %d addresses", bytes, float64(all)/(1<<20), z.Subscribers, z.Addresses)
	if bytes > 160 {
		t.Errorf("a session with its binding takes %.1f bytes, more than 160", bytes)
	}
}

func TestSizesCheck(t *testing.T) {
	if err := small.Check(); err != nil {
		t.Error(err)
	}
	for name, row := range map[string]struct {
		change func(*Sizes)
		want   string
	}{
		"no session":        {func(z *Sizes) { z.Sessions = 0 }, "0 sessions"},
		"too many sessions": {func(z *Sizes) { z.Sessions = MaxSessions + 1 }, "sessions"},
		"no client":         {func(z *Sizes) { z.Subscribers = 0 }, "0 clients"},
		"no address":        {func(z *Sizes) { z.Addresses = 0 }, "0 addresses"},
		"odd block":         {func(z *Sizes) { z.BlockWords = 3 }, "192 ports"},
		"huge block":        {func(z *Sizes) { z.BlockWords = 2048 }, "131072 ports"},
		"no length":         {func(z *Sizes) { z.SubscriberLength = 0 }, "0 bits"},
		"long length":       {func(z *Sizes) { z.SubscriberLength = 129 }, "129 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			z := small
			row.change(&z)
			err := z.Check()
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want one about %q", err, row.want)
			}
			if _, _, got := Open(z, nil, seed); got == nil || got.Error() != err.Error() {
				t.Errorf("Open says %v", got)
			}
		})
	}
}
