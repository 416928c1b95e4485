// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package digest

import (
	"errors"
	"strings"
)

// Errors of headers that cannot be read.
var (
	ErrNotDigest = errors.New("the scheme is not Digest")
	ErrMalformed = errors.New("the parameters are malformed")
	ErrTwice     = errors.New("a parameter is there twice")
	ErrMissing   = errors.New("a parameter is missing")
	ErrUnknown   = errors.New("the algorithm is not known")
)

// maxHeader bounds a header, in octets.
const maxHeader = 4096

// parameters are those of a header by their names in small letters.
type parameters map[string]string

// parse reads a header: the scheme, and parameters with commas between them (RFC 3261 section
// 25.1: auth-param).
func parse(header string) (parameters, error) {
	scheme, rest, _ := strings.Cut(strings.TrimLeft(header, " \t"), " ")
	if !strings.EqualFold(scheme, "Digest") {
		return nil, ErrNotDigest
	}
	if len(header) > maxHeader {
		return nil, ErrMalformed
	}
	all := parameters{}
	for rest = trim(rest); rest != ""; {
		name, value, after, ok := parameter(rest)
		if !ok {
			return nil, ErrMalformed
		}
		if _, twice := all[name]; twice {
			return nil, ErrTwice
		}
		all[name] = value
		if rest = trim(after); rest == "" {
			break
		}
		if rest[0] != ',' {
			return nil, ErrMalformed
		}
		rest = trim(rest[1:])
	}
	return all, nil
}

func trim(s string) string { return strings.TrimLeft(s, " \t\r\n") }

// parameter reads name = value, in quotation marks or not.
func parameter(s string) (name, value, rest string, ok bool) {
	name, rest, ok = strings.Cut(s, "=")
	name = strings.ToLower(strings.TrimRight(name, " \t\r\n"))
	if !ok || !isToken(name) {
		return "", "", "", false
	}
	if rest = trim(rest); strings.HasPrefix(rest, `"`) {
		value, rest, ok = unquote(rest[1:])
		return name, value, rest, ok
	}
	end := strings.IndexAny(rest, ", \t\r\n")
	if end < 0 {
		end = len(rest)
	}
	return name, rest[:end], rest[end:], isToken(rest[:end])
}

// unquote reads a quoted string behind its first mark.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// isToken reports whether s is a token (RFC 3261 section 25.1).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("-.!%*_+`'~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// writer writes a header.
type writer struct{ strings.Builder }

// quoted writes a parameter in quotation marks; token one without. Neither writes an empty one.
func (w *writer) quoted(name, value string) {
	if value != "" {
		w.token(name, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)+`"`)
	}
}

func (w *writer) token(name, value string) {
	if value == "" {
		return
	}
	if w.Len() == 0 {
		w.WriteString("Digest ")
	} else {
		w.WriteString(", ")
	}
	w.WriteString(name + "=" + value)
}
