// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config/key"
)

// The parsers of package key by short names, for the sections that are declared here.
type (
	fault         = key.Fault
	parser[T any] = key.Parser[T]
)

var (
	wrong    = key.Wrong
	kindOf   = key.KindOf
	boolean  = key.Bool
	duration = key.Duration
	address4 = key.Address4
	address6 = key.Address6
	filePath = key.File
	nearest  = key.Nearest
)

func text[T any](example string, parse func(string) (T, *fault)) parser[T] {
	return key.Text(example, parse)
}
func optional[T any](parse parser[T]) parser[T] { return key.Optional(parse) }
func listOf[T any](parse parser[T]) parser[[]T] { return key.List(parse) }
func oneOf[T ~string](words ...T) parser[T]     { return key.OneOf(words...) }
func integer[T ~int | ~uint8 | ~uint16](low, high int64) parser[T] {
	return key.Integer[T](low, high)
}

// wrong reports a fault of the value at path, at the element that has it.
func (c *checker) wrong(path string, f *fault) {
	c.mark(path)
	if f.Element > 0 {
		path = fmt.Sprintf("%s[%d]", path, f.Element-1)
	}
	c.fail(path, f.Problem, f.Remedy)
}

// listen parses an address and port of either family.
var listen = text("127.0.0.1:9464", func(s string) (netip.AddrPort, *fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return a, wrong("write it like 127.0.0.1:9464 or [::1]:9464", "%q is not an address with a port", s)
	}
	return a, nil
})

var socketPath = text("/run/isthmus/control.sock", func(s string) (string, *fault) {
	// The kernel's limit is 108 bytes with the zero at the end (unix(7)).
	if !strings.HasPrefix(s, "/") || len(s) > 107 {
		return "", wrong("write an absolute path of at most 107 bytes, like /run/isthmus/control.sock", "%q cannot be the path of a socket", s)
	}
	return s, nil
})

func permissions(raw any) (fs.FileMode, *fault) {
	n, ok := raw.(int64)
	switch {
	case !ok:
		return 0, wrong("write a number like 0o660, without quotes", "this is %s where permissions are wanted", kindOf(raw))
	case 600 <= n && n <= 777 && n%100 < 78 && n%10 < 8: // above 0o777, as people write it who forget the 0o
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
