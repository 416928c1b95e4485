// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"strings"
)

// Frame finds what a stream begins with (RFC 3261 sections 7.5 and 18.3): the first n octets are
// a message, or with ping a keep-alive that is answered by one line end (RFC 5626 section
// 4.4.1), or with neither blank. With n 0 there has to come more first. A fault ends the stream,
// in which no further message can be found; its request, if there is one, is in data as far as
// it has come.
func Frame(data []byte, limit int) (n int, ping bool, f *Fault) {
	if bytes.HasPrefix(data, headerEnd) {
		return len(headerEnd), true, nil
	}
	if bytes.HasPrefix(data, lineEnd) {
		if len(data) == 2 || data[2] == '\r' && len(data) == 3 {
			return 0, false, nil // a second line end would make it a keep-alive
		}
		return len(lineEnd), false, nil
	}
	end := bytes.Index(data, headerEnd)
	if end < 0 {
		if len(data) >= limit {
			return 0, false, faultTooLarge
		}
		return 0, false, nil
	}
	length, ok := contentLength(string(data[:end]))
	if !ok {
		return 0, false, faultLength
	}
	n = end + len(headerEnd) + length
	switch {
	case n > limit:
		return 0, false, faultTooLarge
	case n > len(data):
		return 0, false, nil
	}
	return n, false, nil
}

// contentLength finds the length of the body, which every message in a stream has (RFC 3261
// section 20.14).
func contentLength(head string) (length int, ok bool) {
	found := ""
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, there := strings.Cut(line, ":")
		if !there || canonical(strings.TrimRight(name, " \t")) != "Content-Length" {
			continue
		}
		if value = strings.Trim(value, " \t"); found != "" && found != value {
			return 0, false
		}
		found = value
	}
	n, ok := number(found, MaxSize)
	return int(n), ok
}
