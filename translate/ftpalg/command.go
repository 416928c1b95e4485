// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
)

// verb is a command that means something to the proxy.
type verb uint8

const (
	otherVerb verb = iota
	epsvVerb
	eprtVerb
	pasvVerb
	portVerb
	algsVerb
	authVerb
)

// parseCommand splits a line without its end into the command, whose case does
// not matter (RFC 959 section 5.3), and its argument without blanks around it.
func parseCommand(line []byte) (verb, string) {
	word, argument, _ := bytes.Cut(line, []byte{' '})
	if len(word) != 4 {
		return otherVerb, ""
	}
	v := otherVerb
	switch strings.ToUpper(string(word)) {
	case "EPSV":
		v = epsvVerb
	case "EPRT":
		v = eprtVerb
	case "PASV":
		v = pasvVerb
	case "PORT":
		v = portVerb
	case "ALGS":
		v = algsVerb
	case "AUTH":
		v = authVerb
	default:
		return otherVerb, ""
	}
	return v, string(bytes.Trim(argument, " "))
}

// passiveKind is what the argument of an EPSV asks for.
type passiveKind uint8

const (
	passivePlain    passiveKind = iota // no argument, or the number of the client's protocol
	passiveProtocol                    // the number of another protocol
	passiveAll                         // ALL
	passiveOdd                         // what RFC 2428 does not know
)

// parseEPSV reads the argument of EPSV of a client with that protocol (RFC 2428 section 3).
func parseEPSV(argument, protocol string) passiveKind {
	if argument == "" {
		return passivePlain
	}
	if strings.EqualFold(argument, "ALL") {
		return passiveAll
	}
	for i := range len(argument) {
		if argument[i] < '0' || argument[i] > '9' {
			return passiveOdd
		}
	}
	if strings.TrimLeft(argument, "0") == protocol {
		return passivePlain
	}
	return passiveProtocol
}

// Numbers of the protocols in EPSV and EPRT (RFC 2428 section 2).
const (
	protocolIPv4 = "1"
	protocolIPv6 = "2"
)

// parseEPRT reads the argument of an EPRT for a protocol (RFC 2428 section 2):
//
//	<d>protocol<d>address<d>port<d>
//
// where <d> is one of the printable characters of ASCII.
func parseEPRT(argument, protocol string) (netip.AddrPort, bool) {
	if argument == "" || argument[0] < 33 || argument[0] > 126 {
		return netip.AddrPort{}, false
	}
	fields := strings.Split(argument, argument[:1])
	if len(fields) != 5 || fields[4] != "" || fields[1] != protocol {
		return netip.AddrPort{}, false
	}
	addr, err := netip.ParseAddr(fields[2])
	if err != nil || addr.Is4() != (protocol == protocolIPv4) || addr.Zone() != "" {
		return netip.AddrPort{}, false
	}
	port, err := strconv.ParseUint(fields[3], 10, 16)
	if err != nil || port == 0 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr, uint16(port)), true
}

// appendPORT appends a PORT command for an IPv4 address (RFC 959 section 4.1.2).
func appendPORT(b []byte, at netip.AddrPort) []byte {
	return append(appendNumbers(append(b, "PORT "...), at), "\r\n"...)
}

// appendNumbers appends an IPv4 address and a port as six numbers.
func appendNumbers(b []byte, at netip.AddrPort) []byte {
	for _, octet := range at.Addr().As4() {
		b = append(strconv.AppendUint(b, uint64(octet), 10), ',')
	}
	b = append(strconv.AppendUint(b, uint64(at.Port()>>8), 10), ',')
	return strconv.AppendUint(b, uint64(at.Port()&0xff), 10)
}
