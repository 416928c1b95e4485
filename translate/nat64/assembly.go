// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"time"

	"github.com/isthmus-net/isthmus/translate"
)

// assembly is what is remembered of one packet that comes in fragments.
type assembly struct {
	key      fragmentKey
	account  int32
	deadline time.Duration
	phase    phase
	// endpoints are what the first fragment was given, in phase passing, and turned
	// what it was given then if it went back to the IPv6 side.
	endpoints, turned translate.Endpoints
	id                uint16 // on the IPv4 side, in phase passing
	covered           coverage
	largest           int   // octets of the largest fragment, with its header
	waiting           chain // those that wait
}

// phase is how far an assembly has come.
type phase uint8

const (
	unknown phase = iota // the first fragment has not come
	passing              // fragments are translated as they come
	whole                // fragments wait until all are there
	refused              // the first fragment was dropped, or two overlapped
)

// turn says which assemblies of an account give way first: those that are of no use any
// more, those of which no one has seen a session, the others.
func (p phase) turn() int { return [...]int{unknown: 1, whole: 1, passing: 2, refused: 0}[p] }

const (
	waitingTurn = 1
	turns       = 3
)

// fragmentKey tells the fragments of one packet (RFC 791 section 3.2, RFC 8200 section
// 4.5). Addresses are in their 16 octet form.
type fragmentKey struct {
	src, dst [16]byte
	id       uint32
	proto    uint8
}

// assemblies is the table of those of one direction, of fixed size. All live equally long,
// so they end in the order in which they came.
type assemblies struct {
	index    map[fragmentKey]int32
	slots    []assembly
	links    links
	free     []int32
	all      list
	accounts accounts
	memory   arena

	hold  time.Duration
	stats *Stats
}

// newAssemblies makes a table for the limits. length is that of a client's prefix.
func newAssemblies(l *Limits, hold time.Duration, length int, stats *Stats) assemblies {
	f := assemblies{
		index: make(map[fragmentKey]int32, l.FragmentPackets), slots: make([]assembly, l.FragmentPackets),
		links: make(links, l.FragmentPackets), all: list{noSlot, noSlot}, memory: newArena(l.FragmentMemory),
		hold: hold, stats: stats,
	}
	share := [things]int{packets: l.FragmentPacketsSource, memory: l.FragmentMemorySource / chunkSize}
	if l.FragmentMemorySource == 0 {
		share[memory] = len(f.memory.next)
	}
	f.accounts = newAccounts(l.FragmentPackets, length, share)
	for i := len(f.slots) - 1; i >= 0; i-- {
		f.free = append(f.free, int32(i))
	}
	return f
}

// find returns the assembly of a fragment, or nil if it is the first to come.
func (f *assemblies) find(k *fragmentKey) *assembly {
	if i, ok := f.index[*k]; ok {
		return &f.slots[i]
	}
	return nil
}

// begin makes an assembly on an account. Without room another gives way: one of the same
// account if that has its share, or of the account that has most.
func (f *assemblies) begin(k *fragmentKey, of accountKey, now time.Duration) (*assembly, Reason) {
	if own := f.accounts.find(of); own != noSlot && f.accounts.beyond(own, packets, 1) {
		f.displace(own, FragmentsSource)
	}
	switch {
	case f.accounts.share[packets] == 0:
		return nil, FragmentsSource
	case len(f.slots) == 0:
		return nil, FragmentsFull
	case len(f.free) == 0:
		f.displace(f.accounts.greatest(of, packets, 1), FragmentEvicted)
	}
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.index[*k] = i
	account := f.accounts.open(of)
	f.accounts.hold(account, packets, 1)
	f.slots[i] = assembly{key: *k, account: account, deadline: now + f.hold}
	f.links.push(&f.all, byDeadline, i)
	f.links.push(f.ownList(i), ofAccount, i)
	return &f.slots[i], none
}

// displace ends the assembly of an account whose turn it is.
func (f *assemblies) displace(account int32, why Reason) {
	for _, l := range f.accounts.slots[account].lists {
		if l.oldest != noSlot {
			f.stats.AssembliesEvicted++
			f.remove(&f.slots[l.oldest], why)
			return
		}
	}
}

// keep stores a fragment behind those that wait. Without room the oldest that wait give way,
// chosen as by begin; it fails if those are of the same packet.
func (f *assemblies) keep(a *assembly, ip []byte) Reason {
	need := chunksFor(len(ip))
	if need > min(len(f.memory.next), f.accounts.share[memory]) {
		return FragmentMemory
	}
	for f.accounts.beyond(a.account, memory, need) {
		if !f.spoilOldest(a.account, a, FragmentsSource) {
			return FragmentMemory
		}
	}
	for f.memory.unused < need {
		if !f.spoilOldest(f.accounts.greatest(f.accounts.slots[a.account].key, memory, need), a, FragmentEvicted) {
			return FragmentMemory
		}
	}
	f.accounts.hold(a.account, memory, need)
	f.memory.put(&a.waiting, ip)
	f.stats.FragmentsStored++
	return none
}

// spoilOldest spoils the oldest assembly of an account that has fragments waiting, which is
// then no longer to be had; not if it is the one given.
func (f *assemblies) spoilOldest(account int32, but *assembly, why Reason) bool {
	i := f.accounts.slots[account].lists[waitingTurn].oldest
	if i == noSlot || &f.slots[i] == but {
		return false
	}
	f.stats.AssembliesEvicted++
	f.spoil(&f.slots[i], why)
	return true
}

// spoil makes an assembly one whose fragments are dropped: those that wait, for the reason
// given, and those to come.
func (f *assemblies) spoil(a *assembly, why Reason) {
	f.stats.Dropped[why] += uint64(a.waiting.packets)
	f.release(a)
	f.enter(a, refused)
}

// release gives the memory of what waits back.
func (f *assemblies) release(a *assembly) {
	f.accounts.hold(a.account, memory, -a.waiting.chunks)
	f.memory.release(&a.waiting)
}

// enter puts an assembly into another phase.
func (f *assemblies) enter(a *assembly, p phase) {
	i := f.index[a.key]
	f.links.cut(f.ownList(i), ofAccount, i)
	a.phase = p
	f.links.push(f.ownList(i), ofAccount, i)
}

// charge puts an assembly on another account, where others give way to it if they are too
// many. It fails if what waits of it is more than one account may have.
func (f *assemblies) charge(a *assembly, to accountKey) Reason {
	if a.waiting.chunks > f.accounts.share[memory] {
		return FragmentMemory
	}
	i := f.index[a.key]
	account := f.accounts.open(to)
	f.links.cut(f.ownList(i), ofAccount, i)
	f.accounts.hold(account, packets, 1)
	f.accounts.hold(account, memory, a.waiting.chunks)
	f.accounts.hold(a.account, memory, -a.waiting.chunks)
	f.accounts.hold(a.account, packets, -1)
	a.account = account
	if f.accounts.beyond(account, packets, 0) {
		f.displace(account, FragmentsSource)
	}
	for f.accounts.beyond(account, memory, 0) {
		f.spoilOldest(account, nil, FragmentsSource)
	}
	f.links.push(f.ownList(i), ofAccount, i)
	return none
}

// remove ends an assembly; what waits is dropped for the reason given.
func (f *assemblies) remove(a *assembly, why Reason) {
	f.stats.Dropped[why] += uint64(a.waiting.packets)
	f.release(a)
	i := f.index[a.key]
	f.links.cut(&f.all, byDeadline, i)
	f.links.cut(f.ownList(i), ofAccount, i)
	f.accounts.hold(a.account, packets, -1)
	delete(f.index, a.key)
	f.free = append(f.free, i)
}

// next returns when the oldest assembly ends; ok is false when there is none.
func (f *assemblies) next() (at time.Duration, ok bool) {
	if f.all.oldest == noSlot {
		return 0, false
	}
	return f.slots[f.all.oldest].deadline, true
}

// expire ends what is due. A call does a bounded part of the work.
func (f *assemblies) expire(now time.Duration) {
	for range 1024 {
		if at, ok := f.next(); !ok || at > now {
			return
		}
		f.remove(&f.slots[f.all.oldest], FragmentTimeout)
	}
}

// ownList is the list of its account that an assembly is in.
func (f *assemblies) ownList(i int32) *list {
	a := &f.slots[i]
	return &f.accounts.slots[a.account].lists[a.phase.turn()]
}
