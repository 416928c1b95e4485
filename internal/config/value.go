// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// The parsers of package key by short names, for the sections that are declared here.
type (
	fault         = key.Fault
	parser[T any] = key.Parser[T]
)

var (
	wrong         = key.Wrong
	kindOf        = key.KindOf
	boolean       = key.Bool
	count         = key.Count
	duration      = key.Duration
	address4      = key.Address4
	address6      = key.Address6
	prefix        = key.PrefixLike
	prefix6       = key.Prefix6
	instanceName  = key.InstanceName
	interfaceName = key.Interface
	filePath      = key.File
	nearest       = key.Nearest

	translationPrefix = keys.Prefix
)

func text[T any](example string, parse func(string) (T, *fault)) parser[T] {
	return key.Text(example, parse)
}
func optional[T any](parse parser[T]) parser[T] { return key.Optional(parse) }
func listOf[T any](parse parser[T]) parser[[]T] { return key.List(parse) }
func filled[T any](remedy string, parse parser[[]T]) parser[[]T] {
	return key.Filled(remedy, parse)
}
func oneOf[T ~string](words ...T) parser[T] { return key.OneOf(words...) }
func integer[T ~int | ~uint8 | ~uint16](low, high int64) parser[T] {
	return key.Integer[T](low, high)
}

// set stores the value of a key, if there is one, or reports why it cannot.
func set[T any](c *checker, section, key string, raw any, into *T, parse parser[T]) {
	if raw == nil {
		return
	}
	path := section + "." + key
	value, f := parse(raw)
	if f == nil {
		*into = value
		return
	}
	c.wrong(path, f)
}

// wrong reports a fault of the value at path, at the element that has it.
func (c *checker) wrong(path string, f *fault) {
	c.failed[path] = true
	if f.Element > 0 {
		path = fmt.Sprintf("%s[%d]", path, f.Element-1)
	}
	c.fail(path, f.Problem, f.Remedy)
}

// bind4 parses an IPv4 address and port to listen on; 0.0.0.0 is any address.
var bind4 = text("0.0.0.0:3545", func(s string) (netip.AddrPort, *fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || !a.Addr().Is4() || a.Addr().IsMulticast() {
		return a, wrong("write it like 0.0.0.0:3545", "%q is not an IPv4 address with a port", s)
	}
	return a, nil
})

// endpoint4 parses the IPv4 address and UDP port of another host.
var endpoint4 = text("192.0.2.3:3545", func(s string) (netip.AddrPort, *fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || !a.Addr().Is4() || a.Port() == 0 {
		return a, wrong("write it like 192.0.2.3:3545", "%q is not an IPv4 address with a port", s)
	}
	if _, f := address4(a.Addr().String()); f != nil {
		return a, f
	}
	return a, nil
})

// listen parses an address and port of either family.
var listen = text("127.0.0.1:9464", func(s string) (netip.AddrPort, *fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return a, wrong("write it like 127.0.0.1:9464 or [::1]:9464", "%q is not an address with a port", s)
	}
	return a, nil
})

// servicePrefix parses a Teredo service prefix (RFC 4380, section 2.6): 32 bits
// long by the layout of the address.
var servicePrefix = text("2001::/32", func(s string) (netip.Prefix, *fault) {
	p, f := prefix(s, "2001::/32")
	if f == nil && (!p.Addr().Is6() || p.Bits() != 32) {
		return p, wrong("write one like 2001::/32", "a Teredo prefix is an IPv6 prefix of 32 bits, which %s is not", p)
	}
	return p, f
})

// privateRange parses an IPv4 range that is to count as global.
var privateRange = text("10.0.0.0/8", func(s string) (netip.Prefix, *fault) {
	p, f := prefix(s, "10.0.0.0/8")
	if f != nil {
		return p, f
	}
	if !p.Addr().Is4() {
		return p, wrong("write one like 10.0.0.0/8", "%s is not an IPv4 prefix", p)
	}
	open := teredo.GlobalCheck{Allow: []netip.Prefix{p}}
	if !open.OK(p.Addr()) {
		return p, wrong("name a range of unicast addresses, like 10.0.0.0/8", "no host can be reached in %s", p)
	}
	return p, nil
})

// onlyNumbers is what looks like an IPv4 address and would only mislead as a
// name.
var onlyNumbers = regexp.MustCompile(`^[0-9.]+$`)

var host = text("192.0.2.1", func(s string) (Host, *fault) {
	if onlyNumbers.MatchString(s) || strings.Contains(s, ":") {
		a, f := address4(s)
		return Host{Addr: a}, f
	}
	if !key.IsHostName(s) {
		return Host{}, wrong("write it like 192.0.2.1 or teredo.example.net", "%q is neither an IPv4 address nor a host name", s)
	}
	return Host{Name: s}, nil
})

var secondary = text(string(SecondaryAuto), func(s string) (Secondary, *fault) {
	switch SecondaryMode(s) {
	case SecondaryAuto, SecondaryNone:
		return Secondary{Mode: SecondaryMode(s)}, nil
	}
	a, f := address4(s)
	if f != nil {
		return Secondary{}, wrong(`write "auto", "none" or an IPv4 address like 192.0.2.2`, "%q is not known here", s)
	}
	return Secondary{Mode: SecondaryAddress, Addr: a}, nil
})

var socketPath = text("/run/isthmus/control.sock", func(s string) (string, *fault) {
	// The kernel's limit is 108 bytes with the zero at the end (unix(7)).
	if !strings.HasPrefix(s, "/") || len(s) > 107 {
		return "", wrong("write an absolute path of at most 107 bytes, like /run/isthmus/control.sock", "%q cannot be the path of a socket", s)
	}
	return s, nil
})

// decimalDigits are the numbers above 0o777 that people write who forget the 0o.
var decimalDigits = regexp.MustCompile(`^[67][0-7][0-7]$`)

func permissions(raw any) (fs.FileMode, *fault) {
	n, ok := raw.(int64)
	switch {
	case !ok:
		return 0, wrong("write a number like 0o660, without quotes", "this is %s where permissions are wanted", kindOf(raw))
	case decimalDigits.MatchString(fmt.Sprint(n)):
		return 0, wrong(fmt.Sprintf("write 0o%d", n), "%d is in decimal, and permissions are octal", n)
	case n < 0:
		return 0, wrong("write it in octal with 0o in front, like 0o660", "%d is not a set of permissions", n)
	case n > 0o777:
		return 0, wrong("write one up to 0o777, like 0o660", "%O is not a set of permissions", n)
	}
	return fs.FileMode(n), nil
}

var groupName = text("isthmus", func(s string) (string, *fault) {
	if strings.ContainsAny(s, ":/ \t\n") {
		return "", wrong("write the name or number of a group, like isthmus", "%q cannot be a group", s)
	}
	return s, nil
})

var logLevel = text("info", func(s string) (slog.Level, *fault) {
	var level slog.Level
	switch s {
	case "debug", "info", "warn", "error":
		if err := level.UnmarshalText([]byte(s)); err == nil {
			return level, nil
		}
	}
	return level, wrong(`write "debug", "info", "warn" or "error"`, "%q is not a log level", s)
})
