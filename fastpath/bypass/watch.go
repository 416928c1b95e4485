// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// gather is how long changes are waited for that belong together, as the
	// lines of a ruleset do.
	gather = 20 * time.Millisecond
	// pause is the least time between two signals: to look again costs some
	// milliseconds.
	pause = 500 * time.Millisecond
	// forSilent is how often to look without any event: the old iptables and
	// BPF programs come without a word.
	forSilent = 10 * time.Second
)

// source is a kernel subsystem that tells of its changes.
type source struct {
	protocol int
	groups   []int
}

var sources = []source{
	{unix.NETLINK_ROUTE, []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_TC, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	}},
	{unix.NETLINK_NETFILTER, []int{unix.NFNLGRP_NFTABLES}},
	{unix.NETLINK_XFRM, []int{nl.XFRMNLGRP_POLICY}},
}

// Watch signals whenever [Find] may have another answer in the calling thread's
// network namespace: soon after an event, and every ten seconds for what the
// kernel tells no one of. The channel is closed after ctx ends. A subsystem that
// may not be watched, for want of a capability or in this kernel, is covered by
// the ten seconds.
func Watch(ctx context.Context, q Query) (<-chan struct{}, error) {
	return watch(ctx, q, forSilent)
}

// watch is Watch with another time for what comes without a word.
func watch(ctx context.Context, q Query, silent time.Duration) (<-chan struct{}, error) {
	events := make(chan struct{}, 1)
	var files []*os.File
	for _, s := range sources {
		f, err := s.open()
		if s.protocol == unix.NETLINK_ROUTE && err != nil {
			return nil, fmt.Errorf("cannot watch for firewalls and policy routing: %w", err)
		}
		if err == nil {
			files = append(files, f)
		}
	}
	var readers sync.WaitGroup
	for i, f := range files {
		relevant := func(*syscall.NetlinkMessage) bool { return true }
		if i == 0 {
			relevant = q.relevant
		}
		readers.Go(func() { read(f, relevant, events) })
	}
	due := make(chan struct{}, 1)
	go func() {
		defer close(due)
		defer readers.Wait()
		pace(ctx, silent, events, due)
		for _, f := range files {
			f.Close()
		}
	}()
	return due, nil
}

// open subscribes to a subsystem.
func (s *source) open() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, s.protocol)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, group := range s.groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// read turns messages into events until the file is closed. Lost messages are an
// event, too.
func read(f *os.File, relevant func(*syscall.NetlinkMessage) bool, events chan<- struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if errors.Is(err, unix.ENOBUFS) {
			poke(events)
			continue
		}
		if err != nil {
			return
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			poke(events)
			continue
		}
		for i := range msgs {
			if relevant(&msgs[i]) {
				poke(events)
				break
			}
		}
	}
}

// relevant leaves out the many routes that do not concern the prefixes.
func (q *Query) relevant(m *syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r, ok := parseRoute6(m.Data)
		return !ok || within(q.Prefixes, r)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return false
	}
	return true
}

// poke leaves a signal unless one is waiting already.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pace passes events on, not too many, and adds those of silent changes.
func pace(ctx context.Context, silent time.Duration, events <-chan struct{}, due chan<- struct{}) {
	unheard := time.NewTicker(silent)
	defer unheard.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-unheard.C:
		case <-events:
			sleep(ctx, gather)
			select {
			case <-events:
			default:
			}
		}
		poke(due)
		sleep(ctx, pause)
	}
}

// sleep waits, but not beyond the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
