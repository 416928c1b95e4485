// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import "strconv"

// parseReply reads the code of a reply's line. more is true if the line begins a
// reply of several lines (RFC 959 section 4.2).
func parseReply(line []byte) (code int, more, ok bool) {
	if len(line) < 3 {
		return 0, false, false
	}
	for _, c := range line[:3] {
		if c < '0' || c > '9' {
			return 0, false, false
		}
		code = 10*code + int(c-'0')
	}
	if code < 100 || code > 699 {
		return 0, false, false
	}
	switch {
	case len(line) == 3 || line[3] == ' ':
		return code, false, true
	case line[3] == '-':
		return code, true, true
	}
	return 0, false, false
}

// parsePassive finds the port in a line of a reply 227: the last two of six
// numbers. What stands around them differs between servers (RFC 1123 section
// 4.1.2.6). Their address is of no interest; many servers behind NATs name one
// that leads nowhere (RFC 6384 section 6).
func parsePassive(line []byte) (port uint16, ok bool) {
	if len(line) < 4 {
		return 0, false
	}
	var numbers [6]int
	count := 0 // numbers in a row, with single commas between them
	for i := 4; i < len(line); {
		if line[i] < '0' || line[i] > '9' {
			if line[i] != ',' || count == 0 || line[i-1] == ',' {
				count = 0
			}
			i++
			continue
		}
		if count > 0 && line[i-1] != ',' {
			count = 0
		}
		n := 0
		for ; i < len(line) && line[i] >= '0' && line[i] <= '9'; i++ {
			n = min(10*n+int(line[i]-'0'), 256)
		}
		if n > 255 {
			count = 0
			continue
		}
		numbers[count] = n
		count++
		if count == len(numbers) {
			port = uint16(numbers[4]<<8 | numbers[5])
			return port, port != 0
		}
	}
	return 0, false
}

// appendExtendedPassive appends the reply to EPSV (RFC 2428 section 3).
func appendExtendedPassive(b []byte, port uint16) []byte {
	b = append(b, "229 Entering Extended Passive Mode (|||"...)
	b = strconv.AppendUint(b, uint64(port), 10)
	return append(b, "|)\r\n"...)
}

// Replies of the proxy's own. All is ASCII, whatever language client and server
// have agreed upon (RFC 6384 section 5.1).
const (
	replyProtocol     = "522 Network protocol not supported, use (2)\r\n"
	replyProtocolIPv4 = "522 Network protocol not supported, use (1)\r\n"
	replyAll          = "504 Command not implemented for that parameter\r\n"
	replyNoData       = "425 Can't open data connection\r\n"
	replyArgument     = "504 Use ALGS with STATUS64, ENABLE64 or DISABLE64\r\n"
	replyNone         = "216 NONE\r\n"
	replyEPSV         = "216 EPSV\r\n"
	replyBoth         = "216 EPSVEPRT\r\n"
	replyBusy         = "421 Too many connections through this gateway\r\n"
	replyNoServer     = "421 The server cannot be reached\r\n"
	replyStop         = "421 Service not available, closing control connection\r\n"
	commandPassive    = "PASV\r\n"
	commandExtended   = "EPSV\r\n"
	commandNothing    = "NOOP\r\n"
	codePassive       = 227
	codeExtended      = 229
	codeNothing       = 200
	codeNotLoggedIn   = 530
)
