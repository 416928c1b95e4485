// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/key"
)

// endpoint4 parses the IPv4 address and UDP port of another host.
var endpoint4 = key.Text("192.0.2.3:3545", func(s string) (netip.AddrPort, *key.Fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || !a.Addr().Is4() || a.Port() == 0 {
		return a, key.Wrong("write it like 192.0.2.3:3545", "%q is not an IPv4 address with a port", s)
	}
	if _, f := key.Address4(a.Addr().String()); f != nil {
		return a, f
	}
	return a, nil
})

// Host is an IPv4 address or a name that is to be resolved to one.
type Host struct {
	Addr netip.Addr // valid if an address was written
	Name string
}

// String returns the host as it was written.
func (h Host) String() string {
	if h.Addr.IsValid() {
		return h.Addr.String()
	}
	return h.Name
}

var parseHost = key.Text("192.0.2.1", func(s string) (Host, *key.Fault) {
	// What looks like an address would only mislead as a name.
	if s != "" && strings.Trim(s, "0123456789.") == "" || strings.Contains(s, ":") {
		a, f := key.Address4(s)
		return Host{Addr: a}, f
	}
	if !key.IsHostName(s) {
		return Host{}, key.Wrong("write it like 192.0.2.1 or teredo.example.net", "%q is neither an IPv4 address nor a host name", s)
	}
	return Host{Name: s}, nil
})

// SecondaryMode says whether a client compares the mappings that two server addresses see.
type SecondaryMode string

// Modes of the secondary server address: the one that follows the primary, none, or the one
// that is named.
const (
	SecondaryAuto    SecondaryMode = "auto"
	SecondaryNone    SecondaryMode = "none"
	SecondaryAddress SecondaryMode = "address"
)

// Secondary is the secondary server address of a client.
type Secondary struct {
	Mode SecondaryMode
	Addr netip.Addr // valid in SecondaryAddress mode only
}

var parseSecondary = key.Text(string(SecondaryAuto), func(s string) (Secondary, *key.Fault) {
	switch SecondaryMode(s) {
	case SecondaryAuto, SecondaryNone:
		return Secondary{Mode: SecondaryMode(s)}, nil
	}
	a, f := key.Address4(s)
	if f != nil {
		return Secondary{}, key.Wrong(`write "auto", "none" or an IPv4 address like 192.0.2.2`, "%q is not known here", s)
	}
	return Secondary{Mode: SecondaryAddress, Addr: a}, nil
})

// argv parses a program with its arguments. No shell looks at it, so that no text from the
// network can become a command.
func argv(raw any) ([]string, *key.Fault) {
	const example = `write it like ["/usr/local/bin/moved", "argument"], or [] for none`
	if _, ok := raw.([]any); !ok {
		return nil, key.Wrong(example, "this is %s where a program with its arguments is wanted", key.KindOf(raw))
	}
	words, f := key.List(key.Text("/usr/local/bin/moved", func(s string) (string, *key.Fault) {
		if strings.ContainsRune(s, 0) {
			return "", key.Wrong(example, "a zero byte cannot be passed to a program")
		}
		return s, nil
	}))(raw)
	if f == nil && len(words) > 0 && !filepath.IsAbs(words[0]) {
		f = key.Wrong("write the whole path, since the search path of a service is not yours", "%q does not begin with /", words[0])
		f.Element = 1
	}
	return words, f
}

// orNever takes "0s" for never.
func orNever(parse key.Parser[time.Duration]) key.Parser[time.Duration] {
	return func(raw any) (time.Duration, *key.Fault) {
		if raw == "0s" {
			return 0, nil
		}
		d, f := parse(raw)
		if f != nil {
			f.Remedy += `, or "0s" for never`
		}
		return d, f
	}
}
