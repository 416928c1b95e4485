// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// fault is what a value parser has to say; where it stands is not its business.
type fault struct {
	problem, remedy string
	element         int // index in an array, plus one; 0 is the whole value
}

func wrong(remedy, problem string, args ...any) *fault {
	return &fault{problem: fmt.Sprintf(problem, args...), remedy: remedy}
}

// parser turns a value of the file into a checked one.
type parser[T any] func(raw any) (T, *fault)

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
	c.failed[path] = true
	if f.element > 0 {
		path = fmt.Sprintf("%s[%d]", path, f.element-1)
	}
	c.fail(path, f.problem, f.remedy)
}

// kindOf names the type of a value in words of TOML.
func kindOf(raw any) string {
	switch raw.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	case int64:
		return "a number"
	case float64:
		return "a fraction"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}

// text parses a string and hands it on.
func text[T any](example string, parse func(string) (T, *fault)) parser[T] {
	return func(raw any) (T, *fault) {
		s, ok := raw.(string)
		if !ok {
			var none T
			return none, wrong(fmt.Sprintf("write it in quotes, like %q", example), "this is %s where text is wanted", kindOf(raw))
		}
		return parse(s)
	}
}

// optional takes empty text for the zero value.
func optional[T any](parse parser[T]) parser[T] {
	return func(raw any) (T, *fault) {
		if raw == "" {
			var none T
			return none, nil
		}
		return parse(raw)
	}
}

// listOf parses an array, or one value alone as an array of one.
func listOf[T any](parse parser[T]) parser[[]T] {
	return func(raw any) ([]T, *fault) {
		elements, ok := raw.([]any)
		if !ok {
			value, f := parse(raw)
			return []T{value}, f
		}
		list := make([]T, 0, len(elements))
		for i, element := range elements {
			value, f := parse(element)
			if f != nil {
				f.element = i + 1
				return nil, f
			}
			list = append(list, value)
		}
		return list, nil
	}
}

// filled refuses an empty list, with a remedy.
func filled[T any](remedy string, parse parser[[]T]) parser[[]T] {
	return func(raw any) ([]T, *fault) {
		list, f := parse(raw)
		if f == nil && len(list) == 0 {
			return nil, wrong(remedy, "this list is empty")
		}
		return list, f
	}
}

// oneOf parses a word out of a few.
func oneOf[T ~string](words ...T) parser[T] {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", string(w))
	}
	choice := "write " + strings.Join(quoted, " or ")
	return text(string(words[0]), func(s string) (T, *fault) {
		for _, w := range words {
			if s == string(w) {
				return w, nil
			}
		}
		return "", wrong(choice, "%q is not known here", s)
	})
}

// integer parses a whole number between two bounds, both included.
func integer[T ~int | ~uint8 | ~uint16](low, high int64) parser[T] {
	return func(raw any) (T, *fault) {
		n, ok := raw.(int64)
		if !ok {
			return 0, wrong(fmt.Sprintf("write a whole number from %d to %d, without quotes", low, high), "this is %s where a number is wanted", kindOf(raw))
		}
		if n < low || n > high {
			return 0, wrong(fmt.Sprintf("write a number from %d to %d", low, high), "%d is out of range", n)
		}
		return T(n), nil
	}
}

// count is an integer with no bound but that of its type; the file is not the
// place to know how much memory there is.
func count(low int64) parser[int] { return integer[int](low, math.MaxInt32) }

func boolean(raw any) (bool, *fault) {
	b, ok := raw.(bool)
	if !ok {
		return false, wrong("write true or false, without quotes", "this is %s where true or false is wanted", kindOf(raw))
	}
	return b, nil
}

// duration parses a time with its unit between two bounds, both included.
func duration(low, high time.Duration) parser[time.Duration] {
	return func(raw any) (time.Duration, *fault) {
		if n, ok := raw.(int64); ok {
			return 0, wrong(fmt.Sprintf("write %q if seconds are meant", fmt.Sprintf("%ds", n)), "%d has no unit", n)
		}
		return text("30s", func(s string) (time.Duration, *fault) {
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, wrong(`write it with a unit, like "30s" or "500ms"`, "%q is not a length of time", s)
			}
			if d < low || d > high {
				return 0, wrong(fmt.Sprintf("write a time from %v to %v", low, high), "%v is out of range", d)
			}
			return d, nil
		})(raw)
	}
}

// address4 parses the IPv4 address of a host.
var address4 = text("192.0.2.1", func(s string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return a, wrong("write it like 192.0.2.1", "%q is not an IPv4 address", s)
	}
	if a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return a, wrong("write the address of one host, like 192.0.2.1", "%s is not the address of a host", a)
	}
	return a, nil
})

// address6 parses the IPv6 address of a host.
var address6 = text("2001:db8::1", func(s string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" {
		return a, wrong("write it like 2001:db8::1", "%q is not an IPv6 address", s)
	}
	if !a.IsGlobalUnicast() {
		return a, wrong("write a global one, like 2001:db8::1", "%s cannot be reached from other networks", a)
	}
	return a, nil
})

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

func prefix(s, example string) (netip.Prefix, *fault) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, wrong("write it like "+example, "%q is not a prefix", s)
	}
	if p != p.Masked() {
		return p, wrong("write "+p.Masked().String(), "%s has bits behind its length", p)
	}
	return p, nil
}

// servicePrefix parses a Teredo service prefix (RFC 4380, section 2.6): 32 bits
// long by the layout of the address.
var servicePrefix = text("2001::/32", func(s string) (netip.Prefix, *fault) {
	p, f := prefix(s, "2001::/32")
	if f == nil && (!p.Addr().Is6() || p.Bits() != 32) {
		return p, wrong("write one like 2001::/32", "a Teredo prefix is an IPv6 prefix of 32 bits, which %s is not", p)
	}
	return p, f
})

// prefix6 parses an IPv6 prefix.
var prefix6 = text("2001:db8::/32", func(s string) (netip.Prefix, *fault) {
	p, f := prefix(s, "2001:db8::/32")
	if f == nil && !p.Addr().Is6() {
		return p, wrong("write one like 2001:db8::/32", "%s is not an IPv6 prefix", p)
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

// hostName is the syntax of RFC 1123, section 2.1.
var hostName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.?$`)

// onlyNumbers is what looks like an IPv4 address and would only mislead as a
// name.
var onlyNumbers = regexp.MustCompile(`^[0-9.]+$`)

var host = text("192.0.2.1", func(s string) (Host, *fault) {
	if onlyNumbers.MatchString(s) || strings.Contains(s, ":") {
		a, f := address4(s)
		return Host{Addr: a}, f
	}
	if len(s) > 253 || !hostName.MatchString(s) {
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

// nameSyntax keeps instance names fit for labels, paths and command lines.
var nameSyntax = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?$`)

var instanceName = text("north", func(s string) (string, *fault) {
	if !nameSyntax.MatchString(s) {
		return "", wrong("use 1 to 32 small letters, digits, dots and hyphens, like north-1", "%q cannot be a name", s)
	}
	return s, nil
})

// interfaceSyntax is what the kernel takes: 15 bytes, no slash, blank or colon.
var interfaceSyntax = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`)

var interfaceName = text("teredo", func(s string) (string, *fault) {
	// The kernel has settings of these names (net.ipv6.conf.all) in place of devices.
	if s == "all" || s == "default" {
		return "", wrong("choose another one, like teredo0", "the kernel gives no interface the name %s", s)
	}
	if !interfaceSyntax.MatchString(s) {
		return "", wrong("use at most 15 letters, digits, dots and hyphens, like teredo0", "%q cannot be the name of an interface", s)
	}
	return s, nil
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
