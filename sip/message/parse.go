// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"strings"
)

// Bounds of a message.
const (
	// MaxSize is the largest message, in octets.
	MaxSize = 65535
	// MaxHeaders is how many fields a message may have.
	MaxHeaders = 256
)

var (
	lineEnd   = []byte("\r\n")
	headerEnd = []byte("\r\n\r\n")
)

// Parse reads a datagram, or one message that [Frame] has found in a stream; what is behind the
// body is ignored. With a fault that has a status, the message is the request to [Reply] to, as
// far as it could be read; with any other fault it is nil.
func Parse(data []byte) (*Message, *Fault) {
	for bytes.HasPrefix(data, lineEnd) { // RFC 3261 section 7.5
		data = data[2:]
	}
	if len(data) > MaxSize {
		return nil, &Fault{Name: faultTooLarge.Name}
	}
	p := parser{m: new(Message)}
	head, body, ended := bytes.Cut(data, headerEnd)
	if !ended {
		p.fail(faultNoEnd)
		head = bytes.TrimSuffix(head, lineEnd)
	}
	lines := p.lines(string(head))
	if !p.startLine(lines[0]) {
		return nil, faultNoSIP
	}
	p.m.Headers = make([]Header, 0, min(len(lines), MaxHeaders))
	for _, line := range lines[1:] {
		p.field(line)
	}
	p.body(body)
	p.check()
	switch {
	case p.fault == nil:
		return p.m, nil
	case !p.m.IsRequest():
		return nil, faultResponse
	}
	return p.m, p.fault
}

// parser reads one message, and keeps the first fault.
type parser struct {
	m     *Message
	fault *Fault
}

func (p *parser) fail(f *Fault) {
	if p.fault == nil {
		p.fault = f
	}
}

// lines parts the header, and joins lines that are folded (RFC 3261 section 7.3.1). There is one
// at least. A line end that is not whole could end a field for others that it does not end here.
func (p *parser) lines(head string) []string {
	lines := make([]string, 0, strings.Count(head, "\r\n")+1)
	var folded []string // of the last line, joined once: there may be thousands
	join := func() {
		if len(folded) > 0 {
			lines[len(lines)-1] = strings.Join(folded, " ")
			folded = folded[:0]
		}
	}
	for line := range strings.SplitSeq(head, "\r\n") {
		if strings.ContainsAny(line, "\r\n") {
			p.fail(faultLineEnd)
			line = strings.NewReplacer("\r", " ", "\n", " ").Replace(line)
		}
		if last := len(lines) - 1; last > 0 && (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")) {
			if len(folded) == 0 {
				folded = append(folded, strings.TrimRight(lines[last], " \t"))
			}
			if line = strings.Trim(line, " \t"); line != "" {
				folded = append(folded, line)
			}
			continue
		}
		join()
		lines = append(lines, line)
	}
	join()
	return lines
}

// startLine reads the first line. False: it is not one of SIP.
func (p *parser) startLine(line string) bool {
	if len(line) > 4 && strings.EqualFold(line[:4], "SIP/") {
		p.statusLine(line)
		return true
	}
	words := strings.Fields(line)
	if len(words) < 2 || !IsToken(words[0]) || !isVersion(words[len(words)-1]) {
		return false
	}
	method, rest, _ := strings.Cut(line, " ")
	uri, version, spaced := strings.Cut(rest, " ")
	if !spaced || !isVersion(version) || !IsToken(method) { // there is a blank too many, or too few
		p.m.Method, p.m.URI = words[0], words[1]
		p.fail(faultRequestLine)
		return true
	}
	p.m.Method, p.m.URI = method, uri
	if !strings.EqualFold(version, Version) {
		p.fail(faultVersion)
	}
	// A Request-URI has no headers (section 19.1.1, table 1).
	if u, err := ParseURI(uri); err != nil || u.Headers != "" {
		p.fail(faultURI)
	}
	return true
}

// statusLine reads that of a response.
func (p *parser) statusLine(line string) {
	version, rest, _ := strings.Cut(line, " ")
	code, reason, spaced := strings.Cut(rest, " ")
	status, ok := number(code, 699)
	if !strings.EqualFold(version, Version) || !spaced || !ok || status < 100 || len(code) != 3 {
		p.fail(faultResponse)
	}
	p.m.Status, p.m.Reason = int(status), reason
}

func isVersion(s string) bool {
	if len(s) < 7 || !strings.EqualFold(s[:4], "SIP/") {
		return false
	}
	major, minor, dotted := strings.Cut(s[4:], ".")
	_, one := number(major, 1e9)
	_, two := number(minor, 1e9)
	return dotted && one && two
}

// field reads one field, and parts lists that routing goes by.
func (p *parser) field(line string) {
	name, value, there := strings.Cut(line, ":")
	name = strings.TrimRight(name, " \t")
	if !there || !IsToken(name) {
		p.fail(faultField)
		return
	}
	name, value = canonical(name), strings.Trim(value, " \t")
	if !parted[name] {
		p.add(name, value)
		return
	}
	for one := range split(value, ',') {
		p.add(name, strings.Trim(one, " \t"))
	}
}

func (p *parser) add(name, value string) {
	if len(p.m.Headers) >= MaxHeaders {
		p.fail(faultMany)
		return
	}
	p.m.Add(name, value)
}

// body takes as much as Content-Length says (RFC 3261 section 18.3).
func (p *parser) body(body []byte) {
	lengths := p.m.All("Content-Length")
	if len(lengths) > 0 {
		n, ok := number(lengths[0], MaxSize)
		for _, other := range lengths[1:] {
			if other != lengths[0] {
				ok = false
			}
		}
		if !ok {
			p.fail(faultLength)
			return
		}
		if uint64(len(body)) < n {
			p.fail(faultBody)
			return
		}
		body = body[:n]
	}
	p.m.Body = bytes.Clone(body)
}
