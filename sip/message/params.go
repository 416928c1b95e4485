// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"slices"
	"strings"
)

// Params are parameters in their order.
type Params []Param

// Param is a parameter as it came: a quoted value has its quotation marks. Bare: there is no
// value.
type Param struct {
	Name, Value string
	Bare        bool
}

// Get returns the value of a parameter, without quotation marks. Not ok: there is none.
func (p Params) Get(name string) (value string, ok bool) {
	i := p.index(name)
	if i < 0 {
		return "", false
	}
	return unquote(p[i].Value), true
}

// Has reports whether there is a parameter.
func (p Params) Has(name string) bool { return p.index(name) >= 0 }

// With returns the parameters with one set.
func (p Params) With(name, value string) Params {
	q := slices.Clone(p)
	if i := q.index(name); i >= 0 {
		q[i] = Param{Name: q[i].Name, Value: value}
		return q
	}
	return append(q, Param{Name: name, Value: value})
}

// WithBare returns the parameters with one set that has no value, such as lr.
func (p Params) WithBare(name string) Params {
	return append(p.Without(name), Param{Name: name, Bare: true})
}

// Without returns the parameters without some.
func (p Params) Without(names ...string) Params {
	return slices.DeleteFunc(slices.Clone(p), func(one Param) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, one.Name) })
	})
}

func (p Params) index(name string) int {
	return slices.IndexFunc(p, func(one Param) bool { return strings.EqualFold(one.Name, name) })
}

// String writes the parameters, each behind a semicolon.
func (p Params) String() string {
	var b strings.Builder
	for _, one := range p {
		b.WriteString(";" + one.Name)
		if !one.Bare {
			b.WriteString("=" + one.Value)
		}
	}
	return b.String()
}

// Parameters parts a value such as that of Session-Expires from its parameters. Where these cannot
// be read there are none.
func Parameters(value string) (head string, p Params) {
	head, rest, there := strings.Cut(value, ";")
	if there {
		p, _ = headerParams(rest)
	}
	return strings.TrimSpace(head), p
}

// headerParams reads what follows the semicolon behind an address or a host.
func headerParams(s string) (Params, error) {
	return parameters(s, func(name, value string) bool {
		return IsToken(name) && (value == "" || isQuoted(value) || isWord(value))
	})
}

// isWord reports whether s is a token, a host or what people write in their place.
func isWord(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("-.!%*_+`'~[]:/?@&=$", rune(s[i])) {
			return false
		}
	}
	return true
}

// uriParams reads what follows the semicolon in a URI.
func uriParams(s string) (Params, error) {
	const allowed = "[]/:&+$-_.!~*'()"
	return parameters(s, func(name, value string) bool {
		return name != "" && escaped(name, allowed) && escaped(value, allowed)
	})
}

// maxParams bounds those of one value: URIs are compared by looking each up among those of the other.
const maxParams = 64

func parameters(s string, valid func(name, value string) bool) (all Params, err error) {
	for one := range split(s, ';') {
		if len(all) == maxParams {
			return nil, fmt.Errorf("there are more than %d parameters", maxParams)
		}
		name, value, valued := strings.Cut(one, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !valid(name, value) || valued && value == "" {
			return nil, fmt.Errorf("%q is no parameter", one)
		}
		all = append(all, Param{name, value, !valued})
	}
	return all, nil
}

// isQuoted reports whether s is one quoted string.
func isQuoted(s string) bool { return quotation(s) == len(s) && s != "" }

// quotation is the length of the quoted string that s begins with; 0: it begins with none.
func quotation(s string) int {
	if !strings.HasPrefix(s, `"`) {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// unquote returns the content of a quoted string, and anything else as it is.
func unquote(s string) string {
	if !isQuoted(s) {
		return s
	}
	s = s[1 : len(s)-1]
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Quote writes s as a quoted string.
func Quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
