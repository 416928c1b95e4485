// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// IPv4Word returns an address as programs load it from a packet.
func IPv4Word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// WordIPv4 returns the address that programs load as this word.
func WordIPv4(word uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	return netip.AddrFrom4(b)
}

// IPv4Mask is the mask of so many bits, as it is loaded from a packet.
func IPv4Mask(n int) uint32 { return bits.ReverseBytes32(^uint32(0) << (32 - n)) }

// IPv6Words are the words of an IPv6 address as programs load them from a packet.
func IPv6Words(a [16]byte) [2]uint64 {
	return [2]uint64{binary.NativeEndian.Uint64(a[:]), binary.NativeEndian.Uint64(a[8:])}
}

// IPv6Mask is the mask of so many bits, as it is loaded from a packet.
func IPv6Mask(bits int) [2]uint64 {
	var mask [16]byte
	for i := range mask {
		switch n := bits - 8*i; {
		case n >= 8:
			mask[i] = 0xff
		case n > 0:
			mask[i] = 0xff << (8 - n)
		}
	}
	return IPv6Words(mask)
}

// window is how long a budget of punts lasts.
const window = time.Duration(1) << 26

// PerWindow turns a rate a second into one of the window of a budget; a bound stays one.
func PerWindow(rate int) uint32 {
	if rate <= 0 {
		return 0
	}
	return uint32(max(time.Duration(rate)*window/time.Second, 1))
}

// Monotonic returns the time that the programs go by: CLOCK_MONOTONIC.
func Monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("no monotonic clock: " + err.Error()) // every kernel has one
	}
	return time.Duration(ts.Nano())
}

// Byte is a truth value as programs have it: 0 or 1.
func Byte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
