// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

// URI is one of SIP or SIPS (RFC 3261 section 19.1); of another scheme Opaque is all that
// follows the colon.
type URI struct {
	Scheme         string // in small letters
	User, Password string // as they came, with escapes
	Host           string // in small letters; an IPv6 address without brackets
	Port           uint16 // 0: none is named
	Params         Params
	Headers        string // what follows the question mark
	Opaque         string
}

var errURI = errors.New("the URI is malformed")

// ParseURI reads a URI.
func ParseURI(s string) (u URI, err error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || !isScheme(scheme) || rest == "" {
		return u, fmt.Errorf("%q has no scheme: %w", s, errURI)
	}
	u.Scheme = strings.ToLower(scheme)
	if !u.IsSIP() {
		u.Opaque = rest
		return u, printable(rest)
	}
	// Neither ; nor ? before the @ ends the user (section 19.1.2, and RFC 4475 section 3.1.1.9).
	if user, host, found := strings.Cut(rest, "@"); found {
		rest = host
		u.User, u.Password, _ = strings.Cut(user, ":")
		if u.User == "" || !escaped(u.User, "-_.!~*'()&=+$,;?/") || !escaped(u.Password, "-_.!~*'()&=+$,") {
			return u, fmt.Errorf("%q is no user: %w", user, errURI)
		}
	}
	rest, u.Headers, ok = strings.Cut(rest, "?")
	if ok && (u.Headers == "" || !escaped(u.Headers, "[]/?:+$-_.!~*'()=&")) {
		return u, fmt.Errorf("%q are no headers: %w", u.Headers, errURI)
	}
	rest, params, ok := strings.Cut(rest, ";")
	if ok {
		if u.Params, err = uriParams(params); err != nil {
			return u, err
		}
	}
	u.Host, u.Port, err = hostPort(rest)
	return u, err
}

// isScheme reports whether s is the name of a scheme (RFC 3986 section 3.1).
func isScheme(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && (i == 0 || !strings.ContainsRune("+-.", rune(s[i]))) {
			return false
		}
	}
	return s != "" && !isDigit(s[0])
}

func printable(s string) error {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == '<' || s[i] == '>' || s[i] == '"' || s[i] == 0x7f {
			return errURI
		}
	}
	return nil
}

// IsSIP reports whether the URI is one of SIP or SIPS.
func (u *URI) IsSIP() bool { return u.Scheme == "sip" || u.Scheme == "sips" }

// HostPort is the host with its port, if one is named.
func (u URI) HostPort() string { return JoinHostPort(u.Host, u.Port) }

// ServicePort is the port, or the usual one if none is named (RFC 3261 section 19.1.2).
func (u *URI) ServicePort() uint16 {
	switch transport, _ := u.Params.Get("transport"); {
	case u.Port != 0:
		return u.Port
	case u.Scheme == "sips" || strings.EqualFold(transport, "tls"):
		return 5061
	}
	return 5060
}

// String writes the URI.
func (u URI) String() string {
	if !u.IsSIP() {
		return u.Scheme + ":" + u.Opaque
	}
	var b strings.Builder
	b.WriteString(u.Scheme + ":")
	if u.User != "" {
		b.WriteString(u.User)
		if u.Password != "" {
			b.WriteString(":" + u.Password)
		}
		b.WriteByte('@')
	}
	b.WriteString(u.HostPort() + u.Params.String())
	if u.Headers != "" {
		b.WriteString("?" + u.Headers)
	}
	return b.String()
}

// AOR is the URI as the key of an address of record: without parameters, headers and password,
// without escapes, and without a port that is the usual one (RFC 3261 section 10.3, number 5).
// Not ok: it cannot be one.
func (u *URI) AOR() (aor string, ok bool) {
	if u.Scheme == "tel" {
		number, _, _ := strings.Cut(u.Opaque, ";")
		digits := strings.NewReplacer("-", "", ".", "", "(", "", ")", "").Replace(number) // RFC 3966 section 3
		return "tel:" + strings.ToLower(digits), digits != ""
	}
	if !u.IsSIP() {
		return "", false
	}
	port := u.Port
	if u.Scheme == "sip" && port == 5060 || u.Scheme == "sips" && port == 5061 {
		port = 0
	}
	if u.User == "" {
		return u.Scheme + ":" + JoinHostPort(u.Host, port), true
	}
	return u.Scheme + ":" + Unescape(u.User) + "@" + JoinHostPort(u.Host, port), true
}

// Equal compares URIs as RFC 3261 section 19.1.4 does.
func (u *URI) Equal(v *URI) bool {
	if u.Scheme != v.Scheme {
		return false
	}
	if !u.IsSIP() {
		return u.Opaque == v.Opaque
	}
	return Unescape(u.User) == Unescape(v.User) && Unescape(u.Password) == Unescape(v.Password) &&
		u.Host == v.Host && u.Port == v.Port && u.Params.match(v.Params) && v.Params.match(u.Params) &&
		maps.Equal(headersOf(u.Headers), headersOf(v.Headers))
}

// match reports whether nothing in p speaks against q.
func (p Params) match(q Params) bool {
	for _, one := range p {
		other, there := q.Get(one.Name)
		switch strings.ToLower(one.Name) {
		case "user", "ttl", "method", "maddr", "transport":
			if !there {
				return false
			}
		}
		if there && !strings.EqualFold(Unescape(unquote(one.Value)), Unescape(other)) {
			return false
		}
	}
	return true
}

// headersOf are the headers of a URI by their names.
func headersOf(s string) map[string]string {
	all := map[string]string{}
	for one := range strings.SplitSeq(s, "&") {
		name, value, _ := strings.Cut(one, "=")
		all[strings.ToLower(Unescape(name))] += "\n" + Unescape(value)
	}
	return all
}
