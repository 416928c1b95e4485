// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// split parts s at a separator outside quotations and angle brackets.
func split(s string, separator byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest, more := s, true; more; {
			var part string
			if part, rest, more = cut(rest, separator); !yield(part) {
				return
			}
		}
	}
}

// cut parts s at the first such separator.
func cut(s string, separator byte) (before, after string, found bool) {
	quoted, inside := false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted:
			if c == '\\' {
				i++
			}
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '<':
			inside = true
		case c == '>':
			inside = false
		case c == separator && !inside:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// IsToken reports whether s is a token (RFC 3261 section 25.1).
func IsToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("-.!%*_+`'~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

// number reads digits up to a limit.
func number(s string, limit uint64) (n uint64, ok bool) {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		if n = n*10 + uint64(s[i]-'0'); n > limit {
			return 0, false
		}
	}
	return n, s != ""
}

// escaped reports whether each % is followed by two hexadecimal digits, and each other octet is
// a letter, a digit or one of those allowed.
func escaped(s, allowed string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
			i += 2
		case !isAlphanumeric(c) && !strings.ContainsRune(allowed, rune(c)):
			return false
		}
	}
	return true
}

// Unescape returns s with each % and two hexadecimal digits as the octet that they stand for.
func Unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b.WriteByte(nibble(s[i+1])<<4 | nibble(s[i+2]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func nibble(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// hostPort reads a host with or without a port: a name, an IPv4 address or an IPv6 address in
// brackets. The host comes in small letters, an address as it is printed and without brackets.
func hostPort(s string) (host string, port uint16, err error) {
	rest := ""
	if strings.HasPrefix(s, "[") {
		inside, after, closed := strings.Cut(s[1:], "]")
		// RFC 5118 section 4.10: the ABNF has led to a third colon.
		a, bad := netip.ParseAddr(strings.Replace(inside, ":::", "::", 1))
		if !closed || bad != nil || !a.Is6() || a.Zone() != "" {
			return "", 0, fmt.Errorf("%q is no IPv6 address in brackets", s)
		}
		host, rest = a.String(), after
	} else {
		host, rest = s, ""
		if i := strings.IndexByte(s, ':'); i >= 0 {
			host, rest = s[:i], s[i:]
		}
		host = strings.ToLower(host)
		if !isHost(host) {
			return "", 0, fmt.Errorf("%q is no host", host)
		}
	}
	if rest == "" {
		return host, 0, nil
	}
	n, ok := number(strings.TrimPrefix(rest, ":"), 65535)
	if rest[0] != ':' || !ok || n == 0 {
		return "", 0, fmt.Errorf("%q is no port", rest)
	}
	return host, uint16(n), nil
}

// isHost reports whether s is a name or an IPv4 address. Underscores are no part of host names,
// but of names that are in use.
func isHost(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && s[i] != '-' && s[i] != '.' && s[i] != '_' {
			return false
		}
	}
	return s != "" && s[0] != '.' && s[0] != '-' && len(s) <= 255 && !strings.Contains(s, "..")
}

// JoinHostPort writes a host, in brackets where it is an IPv6 address, with its port, if it has
// one.
func JoinHostPort(host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == 0 {
		return host
	}
	return fmt.Sprintf("%s:%d", host, port)
}
