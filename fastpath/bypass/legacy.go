// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tables of the old iptables, as linux/netfilter/x_tables.h and ip_tables.h lay
// them out for a 64-bit machine.
const (
	soGetInfo    = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	soGetEntries = 65

	lenTableName  = 32
	lenGetEntries = 40 // the name, a size and padding
	lenExtension  = 32 // the head of a match or target
)

// legacyFamily is what differs between iptables and ip6tables.
type legacyFamily struct {
	command  string
	family   uint8
	level    int
	domain   int
	names    string
	lenEntry int // struct ipt_entry or ip6t_entry
	offsets  int // where in it target_offset and next_offset are
}

var legacyFamilies = []legacyFamily{
	{"iptables", unix.NFPROTO_IPV4, unix.SOL_IP, unix.AF_INET, "/proc/thread-self/net/ip_tables_names", 112, 88},
	{"ip6tables", unix.NFPROTO_IPV6, unix.SOL_IPV6, unix.AF_INET6, "/proc/thread-self/net/ip6_tables_names", 168, 140},
}

// tableInfo is struct ipt_getinfo.
type tableInfo struct {
	Name       [lenTableName]byte
	ValidHooks uint32
	HookEntry  [unix.NF_INET_NUMHOOKS]uint32
	Underflow  [unix.NF_INET_NUMHOOKS]uint32
	NumEntries uint32
	Size       uint32
}

// maxTable bounds what is read of a table, in bytes; a rule takes some 200.
const maxTable = 64 << 20

// findLegacy looks into the tables of the old iptables, those that are in use: to
// ask for another would create it.
func findLegacy(q Query) ([]Finding, error) {
	var found []Finding
	var errs []error
	for i := range legacyFamilies {
		f := &legacyFamilies[i]
		tables, err := f.tables()
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("cannot tell which %s tables there are: run as root or as a member of the group root, or name the hook in fast_path: %w", f.command, err)
		} else if err != nil {
			err = unread("the "+f.command+" tables", err)
		}
		errs = append(errs, err)
		for _, table := range tables {
			info, entries, err := f.read(table)
			if err != nil {
				errs = append(errs, unread(fmt.Sprintf("the %s table %s, which is loaded and may hold rules", f.command, table), err))
				continue
			}
			found = append(found, f.judge(q, table, info, entries)...)
		}
	}
	return found, errors.Join(errs...)
}

// tables lists the tables in use.
func (f *legacyFamily) tables() ([]string, error) {
	file, err := os.Open(f.names)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var names []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		names = append(names, lines.Text())
	}
	return names, nil
}

// read returns a table's head and its rules as the kernel has them.
func (f *legacyFamily) read(table string) (*tableInfo, []byte, error) {
	fd, err := unix.Socket(f.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	for range dumpAttempts { // the table may grow between the two calls
		info := new(tableInfo)
		copy(info.Name[:lenTableName-1], table)
		if err := getsockopt(fd, f.level, soGetInfo, unsafe.Slice((*byte)(unsafe.Pointer(info)), unsafe.Sizeof(*info))); err != nil {
			return nil, nil, err
		}
		if info.Size > maxTable {
			return nil, nil, errors.New("it is too big")
		}
		buf := make([]byte, lenGetEntries+int(info.Size))
		copy(buf[:lenTableName-1], table)
		binary.NativeEndian.PutUint32(buf[lenTableName:], info.Size)
		if err = getsockopt(fd, f.level, soGetEntries, buf); !errors.Is(err, unix.EAGAIN) {
			return info, buf[lenGetEntries:], err
		}
	}
	return nil, nil, errors.New("it changes all the time")
}

// getsockopt reads an option that is asked by what stands in the buffer.
func getsockopt(fd, level, option int, buf []byte) error {
	n := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// judge says what of a table packets would meet.
func (f *legacyFamily) judge(q Query, table string, info *tableInfo, entries []byte) []Finding {
	var found []Finding
	for number := range uint32(unix.NF_INET_NUMHOOKS) {
		direction, met := q.met(hook{f.family, number})
		if !met || info.ValidHooks&(1<<number) == 0 {
			continue
		}
		var does string
		switch {
		case info.HookEntry[number] != info.Underflow[number]:
			does = "has rules"
		case !f.accepts(entries, info.Underflow[number]):
			does = "drops everything"
		default:
			continue
		}
		found = append(found, Finding{
			What:   fmt.Sprintf("a chain of the old %s at %s", f.command, hookNames[number]),
			Detail: fmt.Sprintf("that of the table %s %s and looks at %s", table, does, direction),
			Remedy: fmt.Sprintf("Empty it (%s -t %s -S), %s.", f.command, table, choose),
		})
	}
	if f.tracks(entries) {
		found = append(found, tracking(fmt.Sprintf("a rule in the %s table %s needs it, and it would lose sight of redirected flows", f.command, table)))
	}
	return found
}

// accepts reports whether the rule at an offset, a chain's policy, accepts.
func (f *legacyFamily) accepts(entries []byte, at uint32) bool {
	target, _, ok := f.entry(entries, int(at))
	const accept = -2 // -NF_ACCEPT-1: jumps are not negative
	return ok && len(target) >= lenExtension+4 && int32(binary.NativeEndian.Uint32(target[lenExtension:])) == accept
}

// entry returns the target and the matches of the rule at an offset.
func (f *legacyFamily) entry(entries []byte, at int) (target, matches []byte, ok bool) {
	if at < 0 || at+f.lenEntry > len(entries) {
		return nil, nil, false
	}
	e := entries[at:]
	targetAt := int(binary.NativeEndian.Uint16(e[f.offsets:]))
	next := int(binary.NativeEndian.Uint16(e[f.offsets+2:]))
	if targetAt < f.lenEntry || next < targetAt+lenExtension || next > len(e) {
		return nil, nil, false
	}
	return e[targetAt:next], e[f.lenEntry:targetAt], true
}

// tracks reports whether any rule needs connection tracking.
func (f *legacyFamily) tracks(entries []byte) bool {
	for at := 0; ; {
		target, matches, ok := f.entry(entries, at)
		if !ok {
			return false
		}
		if slices.Contains(trackingExtensions, extensionName(target)) {
			return true
		}
		for len(matches) >= lenExtension {
			if slices.Contains(trackingExtensions, extensionName(matches)) {
				return true
			}
			size := int(binary.NativeEndian.Uint16(matches))
			if size < lenExtension || size > len(matches) {
				break
			}
			matches = matches[size:]
		}
		at += int(binary.NativeEndian.Uint16(entries[at+f.offsets+2:]))
	}
}

// extensionName reads the name of a match or target, which follows its size.
func extensionName(b []byte) string { return text(b[2 : lenExtension-1]) }
