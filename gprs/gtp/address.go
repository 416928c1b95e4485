// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "net/netip"

// PDPType is what a context carries: organisation and number of an End User Address
// (TS 29.060 section 7.7.27).
type PDPType uint16

// The types of PDP contexts.
const (
	PDPTypePPP    PDPType = 0x0001
	PDPTypeIPv4   PDPType = 0x0121
	PDPTypeIPv6   PDPType = 0x0157
	PDPTypeIPv4v6 PDPType = 0x018d
)

// String returns the type's name.
func (t PDPType) String() string {
	switch t {
	case PDPTypePPP:
		return "PPP"
	case PDPTypeIPv4:
		return "IPv4"
	case PDPTypeIPv6:
		return "IPv6"
	case PDPTypeIPv4v6:
		return "IPv4v6"
	}
	return "unknown PDP type"
}

// EndUserAddress is the address of a context (TS 29.060 section 7.7.27). A request that
// leaves it to the network has none, or one of zeros. An IPv6 address is a prefix of 64
// bits and an interface identifier.
type EndUserAddress struct {
	Type PDPType
	IPv4 netip.Addr // not valid when absent
	IPv6 netip.Addr // not valid when absent
}

// Static4 returns the IPv4 address that a request asks for.
func (e EndUserAddress) Static4() (netip.Addr, bool) {
	return e.IPv4, e.IPv4.IsValid() && !e.IPv4.IsUnspecified()
}

// Static6 returns the IPv6 address that a request asks for.
func (e EndUserAddress) Static6() (netip.Addr, bool) {
	return e.IPv6, e.IPv6.IsValid() && !e.IPv6.IsUnspecified()
}

// spareEUA are the ones before the organisation.
const spareEUA = 0xf0

// parseEndUserAddress reads a value. Addresses of types that are not IP are ignored, so
// that the request can be answered by a cause of 220.
func parseEndUserAddress(v []byte) (e EndUserAddress, ok bool) {
	if len(v) < 2 {
		return e, false
	}
	e.Type = PDPType(v[0]&^spareEUA)<<8 | PDPType(v[1])
	v = v[2:]
	switch e.Type {
	case PDPTypeIPv4:
		return e, len(v) == 0 || e.take4(&v) && len(v) == 0
	case PDPTypeIPv6:
		return e, len(v) == 0 || e.take6(&v) && len(v) == 0
	case PDPTypeIPv4v6:
		if len(v) == 4 || len(v) == 20 {
			e.take4(&v)
		}
		return e, len(v) == 0 || e.take6(&v) && len(v) == 0
	}
	return e, true
}

func (e *EndUserAddress) take4(v *[]byte) bool {
	if len(*v) < 4 {
		return false
	}
	e.IPv4, *v = netip.AddrFrom4([4]byte(*v)), (*v)[4:]
	return true
}

func (e *EndUserAddress) take6(v *[]byte) bool {
	if len(*v) < 16 {
		return false
	}
	e.IPv6, *v = netip.AddrFrom16([16]byte(*v)), (*v)[16:]
	return true
}

func appendEndUserAddress(b []byte, e EndUserAddress) []byte {
	b = append(b, spareEUA|byte(e.Type>>8), byte(e.Type))
	b = appendAddress(b, e.IPv4)
	return appendAddress(b, e.IPv6)
}

// parseAddress reads the address of a node. One of IPv4 that is written as one of IPv6 (RFC
// 4291 section 2.5.5.2) is the same node.
func parseAddress(v []byte) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(v)
	return a.Unmap(), ok
}

// appendAddress appends nothing of an address that is not valid.
func appendAddress(b []byte, a netip.Addr) []byte {
	switch {
	case a.Is4():
		v := a.As4()
		return append(b, v[:]...)
	case a.IsValid():
		v := a.As16()
		return append(b, v[:]...)
	}
	return b
}

var (
	endUserAddress = format[EndUserAddress]{parseEndUserAddress, appendEndUserAddress}
	// address is the format of GSN addresses (TS 29.060 section 7.7.32) and of charging
	// gateways (7.7.44): 4 or 16 octets.
	address = format[netip.Addr]{parseAddress, appendAddress}
)
