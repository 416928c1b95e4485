// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soSetReplace is IPT_SO_SET_REPLACE.
const soSetReplace = 64

// accepted and dropped are verdicts as rules hold them.
const accepted, dropped = -2, -1

// replacement is struct ipt_replace up to its entries.
type replacement struct {
	Name       [lenTableName]byte
	ValidHooks uint32
	NumEntries uint32
	Size       uint32
	HookEntry  [unix.NF_INET_NUMHOOKS]uint32
	Underflow  [unix.NF_INET_NUMHOOKS]uint32
	Counters   uint32
	Saved      uintptr
}

// setTable gives a chain of the table "filter" a policy, and a rule before it that
// drops all, if wanted. The test goes without it on a kernel without such tables.
func setTable(t *testing.T, f *legacyFamily, hook uint32, policy int32, rule bool) func() error {
	t.Helper()
	return func() error {
		info, entries, err := f.read("filter")
		if err != nil {
			return err
		}
		entries = slices.Clone(entries)
		at := info.Underflow[hook]
		next := uint32(binary.NativeEndian.Uint16(entries[at+uint32(f.offsets)+2:]))
		verdict := func(entry []byte, v int32) {
			target := binary.NativeEndian.Uint16(entry[f.offsets:])
			binary.NativeEndian.PutUint32(entry[int(target)+lenExtension:], uint32(v))
		}
		verdict(entries[at:], policy)
		old := info.NumEntries
		if rule {
			added := slices.Clone(entries[at : at+next])
			verdict(added, dropped)
			entries = slices.Insert(entries, int(at), added...)
			for h := range info.HookEntry {
				if info.HookEntry[h] > at {
					info.HookEntry[h] += next
				}
				if info.Underflow[h] >= at {
					info.Underflow[h] += next
				}
			}
			info.NumEntries++
		}
		// The kernel writes what it counted for the old rules.
		saved := make([]byte, 16*old)
		r := replacement{
			Name: info.Name, ValidHooks: info.ValidHooks, NumEntries: info.NumEntries, Size: uint32(len(entries)),
			HookEntry: info.HookEntry, Underflow: info.Underflow, Counters: old,
			Saved: uintptr(unsafe.Pointer(&saved[0])),
		}
		buf := append(slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))), entries...)
		err = f.setsockopt(buf)
		_ = saved[0] // the kernel had its address
		return err
	}
}

// setsockopt replaces a table.
func (f *legacyFamily) setsockopt(buf []byte) error {
	fd, err := unix.Socket(f.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.SetsockoptString(fd, f.level, soSetReplace, string(buf))
}

func TestFindLegacy(t *testing.T) {
	four, six := &legacyFamilies[0], &legacyFamilies[1]
	tests := []struct {
		name   string
		family *legacyFamily
		hook   uint32
		policy int32
		rule   bool
		want   []string
	}{
		{name: "a table that is loaded and empty", family: six, hook: unix.NF_INET_FORWARD, policy: accepted},
		{
			name: "a rule about forwarded IPv6", family: six, hook: unix.NF_INET_FORWARD, policy: accepted, rule: true,
			want: []string{
				"a chain of the old ip6tables at forward: that of the table filter has rules and looks at packets of both directions. Empty it (ip6tables -t filter -S)",
			},
		},
		{
			name: "a policy that drops forwarded IPv6", family: six, hook: unix.NF_INET_FORWARD, policy: dropped,
			want: []string{"at forward: that of the table filter drops everything"},
		},
		{name: "a rule about forwarded IPv4", family: four, hook: unix.NF_INET_FORWARD, policy: accepted, rule: true},
		{
			name: "a rule about IPv4 input", family: four, hook: unix.NF_INET_LOCAL_IN, policy: accepted, rule: true,
			want: []string{"a chain of the old iptables at input: that of the table filter has rules and looks at packets from clients."},
		},
		{
			name: "a policy that drops IPv4 output", family: four, hook: unix.NF_INET_LOCAL_OUT, policy: dropped,
			want: []string{"at output: that of the table filter drops everything"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ns := router(t)
			var missing error
			ns.Do(t, func() error {
				if _, _, err := tt.family.read("filter"); errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.ENOENT) {
					missing = err
				}
				return nil
			})
			if missing != nil {
				t.Skip("this kernel has no old iptables")
			}
			ns.Do(t, setTable(t, tt.family, tt.hook, tt.policy, tt.rule))
			checkFindings(t, ns, query, tt.want)
		})
	}
}

// entryWith is a rule with one match and a target.
func entryWith(f *legacyFamily, match, target string) []byte {
	b := make([]byte, f.lenEntry+2*(lenExtension+8))
	binary.NativeEndian.PutUint16(b[f.offsets:], uint16(f.lenEntry+lenExtension+8))
	binary.NativeEndian.PutUint16(b[f.offsets+2:], uint16(len(b)))
	binary.NativeEndian.PutUint16(b[f.lenEntry:], lenExtension+8)
	copy(b[f.lenEntry+2:], match)
	binary.NativeEndian.PutUint16(b[f.lenEntry+lenExtension+8:], lenExtension+8)
	copy(b[f.lenEntry+lenExtension+10:], target)
	return b
}

func TestLegacyTracking(t *testing.T) {
	for i := range legacyFamilies {
		f := &legacyFamilies[i]
		for _, tt := range []struct {
			name    string
			entries []byte
			want    bool
		}{
			{"no rule", nil, false},
			{"a rule that tracks nothing", entryWith(f, "udp", "LOG"), false},
			{"a match of state", entryWith(f, "conntrack", ""), true},
			{"address translation", entryWith(f, "udp", "MASQUERADE"), true},
			{"the second rule", append(entryWith(f, "udp", "LOG"), entryWith(f, "state", "")...), true},
			{"cut in the second rule", append(entryWith(f, "udp", "LOG"), entryWith(f, "state", "")[:50]...), false},
		} {
			if got := f.tracks(tt.entries); got != tt.want {
				t.Errorf("%s: %s: %t, want %t", f.command, tt.name, got, tt.want)
			}
		}
	}
}

// FuzzLegacy looks for entries that make the reader loop or panic.
func FuzzLegacy(f *testing.F) {
	for i := range legacyFamilies {
		f.Add(i == 1, uint32(0), entryWith(&legacyFamilies[i], "udp", "LOG"))
	}
	f.Fuzz(func(t *testing.T, six bool, at uint32, entries []byte) {
		family := &legacyFamilies[0]
		if six {
			family = &legacyFamilies[1]
		}
		family.tracks(entries)
		family.accepts(entries, at)
	})
}
