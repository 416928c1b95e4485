// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

// Codes of the Telnet protocol (RFC 854), on which FTP's control connection runs.
const (
	telnetSE   = 240
	telnetDM   = 242 // data mark, the end of a synch
	telnetIP   = 244 // interrupt process
	telnetSB   = 250
	telnetWill = 251
	telnetWont = 252
	telnetDo   = 253
	telnetDont = 254
	telnetIAC  = 255
)

type telnetState uint8

const (
	telnetData telnetState = iota
	telnetCommand
	telnetOption
	telnetSub
	telnetSubCommand
)

// telnet takes Telnet's commands out of the bytes of one side. Options are
// refused as an FTP server refuses them (RFC 6384 section 5, RFC 1123 section
// 4.1.2.12). The two commands that a client may send, interrupt and synch, stay
// where they are, like a doubled IAC.
type telnet struct {
	state telnetState
	verb  byte
	// interrupts are let through.
	interrupts bool
}

// step takes the next byte. What stays of the stream is appended to line, what
// the sender is to be told to answer. refused is true for an option refused.
func (t *telnet) step(c byte, line, answer *[]byte) (refused bool) {
	switch t.state {
	case telnetData:
		if c == telnetIAC {
			t.state = telnetCommand
			return false
		}
		*line = append(*line, c)
	case telnetCommand:
		t.state = telnetData
		t.command(c, line)
	case telnetOption:
		t.state = telnetData
		switch t.verb {
		case telnetWill:
			*answer = append(*answer, telnetIAC, telnetDont, c)
			return true
		case telnetDo:
			*answer = append(*answer, telnetIAC, telnetWont, c)
			return true
		}
	case telnetSub:
		if c == telnetIAC {
			t.state = telnetSubCommand
		}
	case telnetSubCommand:
		t.state = telnetSub
		if c == telnetSE {
			t.state = telnetData
		}
	}
	return false
}

// command takes the byte behind an IAC.
func (t *telnet) command(c byte, line *[]byte) {
	switch {
	case c >= telnetWill && c <= telnetDont:
		t.state, t.verb = telnetOption, c
	case c == telnetSB:
		t.state = telnetSub
	case c == telnetIAC, t.interrupts && (c == telnetIP || c == telnetDM):
		*line = append(*line, telnetIAC, c)
	case c < telnetSE:
		// No command: a file's name in Latin-1, whose sender did not double its
		// last letter.
		*line = append(*line, telnetIAC, c)
	}
}

// withoutTelnet returns a line as its reader sees it: without interrupts, with a
// doubled IAC single. It is the line itself if there is nothing to take out.
func withoutTelnet(line []byte) []byte {
	for i, c := range line {
		if c == telnetIAC {
			return stripTelnet(append([]byte(nil), line[:i]...), line[i:])
		}
	}
	return line
}

func stripTelnet(plain, line []byte) []byte {
	for i := 0; i < len(line); i++ {
		if line[i] != telnetIAC || i+1 == len(line) {
			plain = append(plain, line[i])
			continue
		}
		i++
		switch line[i] {
		case telnetIP, telnetDM:
		case telnetIAC:
			plain = append(plain, telnetIAC)
		default:
			plain = append(plain, telnetIAC, line[i])
		}
	}
	return plain
}
