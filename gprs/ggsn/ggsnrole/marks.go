// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// Mark is the code point of a traffic class.
type Mark struct {
	Class string
	DSCP  uint8
}

// mark returns where a class has its mark; nil: there is no such class.
func mark(m *ggsn.Marks, class string) *uint8 {
	switch class {
	case "conversational":
		return &m.Conversational
	case "streaming":
		return &m.Streaming
	case "interactive1", "interactive2", "interactive3":
		return &m.Interactive[class[len(class)-1]-'1']
	case "background":
		return &m.Background
	}
	return nil
}

// marks are those of the access point.
func (a *APN) marks() ggsn.Marks {
	m := ggsn.DefaultMarks
	for _, one := range a.DSCP {
		*mark(&m, one.Class) = one.DSCP
	}
	return m
}

// markOf parses a class with its code point.
var markOf = key.Text("streaming af41", func(s string) (Mark, *key.Fault) {
	const remedy = `write a class and its DSCP, like "streaming af41" or "background 8"; classes are conversational, streaming, interactive1, interactive2, interactive3 and background`
	class, value, _ := strings.Cut(s, " ")
	dscp, ok := codePoint(strings.ToLower(value))
	if mark(new(ggsn.Marks), class) == nil || !ok {
		return Mark{}, key.Wrong(remedy, "%q does not say which DSCP a traffic class has", s)
	}
	return Mark{class, dscp}, nil
})

// codePoint reads a DSCP, by number or by name (RFC 2474, 2597, 3246, 8622).
func codePoint(s string) (uint8, bool) {
	var a, b uint8
	switch {
	case s == "ef":
		return 46, true
	case s == "le":
		return 1, true
	case len(s) == 3 && s[:2] == "cs" && s[2] >= '0' && s[2] <= '7':
		return (s[2] - '0') << 3, true
	case len(s) == 4 && s[:2] == "af":
		if a, b = s[2]-'0', s[3]-'0'; a >= 1 && a <= 4 && b >= 1 && b <= 3 {
			return a<<3 | b<<1, true
		}
	}
	n, err := strconv.ParseUint(s, 10, 6)
	return uint8(n), err == nil
}

// String is the mark as the file has it.
func (m Mark) String() string { return fmt.Sprintf("%s %d", m.Class, m.DSCP) }
