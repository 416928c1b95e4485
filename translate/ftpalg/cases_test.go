// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import "strings"

// dialogues are scripts in the form of [talk.run], behind the greeting.
var dialogues = []struct {
	name   string
	script string
	// counts names what is counted; empty is nothing.
	counts string
}{
	// EPSV, RFC 6384 section 6.
	{"EPSV of the RFC", `
		c EPSV
		> PASV
		s 227 Entering Passive Mode (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},
	{"EPSV 2", `
		c EPSV 2
		> PASV
		s 227 Entering Passive Mode (192,0,2,31,0,21)
		< 229 Entering Extended Passive Mode (|||21|)`, "epsv_translated"},
	{"EPSV in small letters, with blanks", `
		c epsv  2 
		> PASV
		s 227 ok 10,0,0,1,4,1
		< 229 Entering Extended Passive Mode (|||1025|)`, "epsv_translated"},
	{"EPSV ended by a bare LF", `
		C EPSV\n
		> PASV
		s 227 =192,0,2,31,4,1
		< 229 Entering Extended Passive Mode (|||1025|)`, "epsv_translated"},
	{"address of another host in 227 is ignored", `
		c EPSV
		> PASV
		s 227 Entering Passive Mode (10,1,2,3,237,19).
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},
	{"EPSV 1", `
		c EPSV 1
		> NOOP
		s 200 NOOP ok.
		< 522 Network protocol not supported, use (2)`, "epsv_unsupported"},
	{"EPSV with a large number", `
		c EPSV 4294967298
		> NOOP
		s 200 NOOP ok.
		< 522 Network protocol not supported, use (2)`, "epsv_unsupported"},
	{"EPSV ALL", `
		c EPSV all
		> NOOP
		s 200 NOOP ok.
		< 504 Command not implemented for that parameter
		c EPSV
		> PASV
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated epsv_unsupported"},
	{"EPSV with an odd argument is the server's", `
		c EPSV two
		> EPSV two
		s 501 What?
		< 501 What?`, ""},
	{"227 of several lines", `
		c EPSV
		> PASV
		s 227-Entering
		s 227 Passive Mode (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},
	{"port in the first of several lines", `
		c EPSV
		> PASV
		s 227-(192,0,2,31,237,19)
		s  is where you go
		s 227 Good luck
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},
	{"227 without a port", `
		c EPSV
		> PASV
		s 227 Entering Passive Mode
		< 425 Can't open data connection`, "bad_passive_reply"},
	{"227 with port 0", `
		c EPSV
		> PASV
		s 227 (192,0,2,31,0,0)
		< 425 Can't open data connection`, "bad_passive_reply"},
	{"227 with numbers beyond octets", `
		c EPSV
		> PASV
		s 227 (192,0,2,31,237,1900)
		< 425 Can't open data connection`, "bad_passive_reply"},
	{"PASV refused in several lines", `
		c EPSV
		> PASV
		s 425-Security:
		< 425-Security:
		s  bad address
		<  bad address
		s 425 Sorry
		< 425 Sorry`, "epsv_failed"},
	{"end of a transfer before the 227", `
		c EPSV
		> PASV
		s 226 Transfer complete
		< 226 Transfer complete
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},
	{"end of a transfer before the 227, with a command behind", `
		c EPSV
		> PASV
		c MLSD
		> MLSD
		s 226 Transfer complete
		< 226 Transfer complete
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)
		s 226 Listed
		< 226 Listed
		c ALGS STATUS64
		> NOOP
		s 200 ok
		< 216 EPSVEPRT`, "algs_answered epsv_translated"},
	{"PASV answered with another code: what follows stays in step", `
		c EPSV
		> PASV
		s 200 ok
		< 200 ok` + strings.Repeat(`
		c NOOP
		> NOOP
		s 200 ok
		< 200 ok`, maxPending+6) + `
		c ALGS STATUS64
		> NOOP
		s 200 ok
		< 216 EPSVEPRT`, "algs_answered"},
	{"PASV answered with another code, then as it should be", `
		c EPSV
		> PASV
		s 200 ok
		< 200 ok
		c EPSV
		> PASV
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)
		c ALGS STATUS64
		> NOOP
		s 200 ok
		< 216 EPSVEPRT`, "algs_answered epsv_translated"},
	{"PASV answered with another code, then AUTH", `
		c EPSV
		> PASV
		s 200 ok
		< 200 ok
		c AUTH TLS
		> AUTH TLS
		s 234 ok
		< 234 ok
		c EPSV
		> EPSV`, "auth_accepted"},
	{"one reply for two commands", `
		c RETR big
		> RETR big
		s 150 Here it comes
		< 150 Here it comes
		c ABOR
		> ABOR
		s 226 Aborted
		< 226 Aborted
		c EPSV
		> PASV
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},

	// EPRT, section 7.
	{"EPRT of the RFC", `
		c EPRT |2|2001:db8:2::31|5282|
		> PORT 192,0,2,31,235,32
		s 200 PORT command successful
		< 200 PORT command successful`, "eprt_translated"},
	{"EPRT with another delimiter and spelling", `
		c eprt !2!2001:DB8:2:0::31!5282!
		> PORT 192,0,2,31,235,32`, "eprt_translated"},
	{"EPRT for IPv4", `
		c EPRT |1|192.0.2.7|5282|
		> EPRT |1|192.0.2.7|5282|
		s 200 ok
		< 200 ok`, ""},
	{"EPRT for another host", `
		c EPRT |2|2001:db8:2::32|5282|
		> EPRT |2|2001:db8:2::32|5282|
		s 522 no
		< 522 no`, ""},
	{"EPRT for the host in IPv4's clothes", `
		c EPRT |2|::ffff:192.0.2.31|5282|
		> EPRT |2|::ffff:192.0.2.31|5282|`, ""},
	{"EPRT with a zone", `
		c EPRT |2|2001:db8:2::31%eth0|5282|
		> EPRT |2|2001:db8:2::31%eth0|5282|`, ""},
	{"EPRT to port 0", `
		c EPRT |2|2001:db8:2::31|0|
		> EPRT |2|2001:db8:2::31|0|`, ""},
	{"EPRT to a port beyond 65535", `
		c EPRT |2|2001:db8:2::31|65536|
		> EPRT |2|2001:db8:2::31|65536|`, ""},
	{"EPRT cut off", `
		c EPRT |2|2001:db8:2::31|5282
		> EPRT |2|2001:db8:2::31|5282`, ""},
	{"EPRT without an argument", `
		c EPRT
		> EPRT`, ""},
	{"EPRT with too much", `
		c EPRT |2|2001:db8:2::31|5282|1|
		> EPRT |2|2001:db8:2::31|5282|1|`, ""},

	// AUTH, section 5.
	{"AUTH: what is sent meanwhile is copied", `
		c AUTH TLS
		> AUTH TLS
		C \x\IAC\0EPSV
		> \x\IAC\0EPSV$
		s 234 AUTH TLS successful
		< 234 AUTH TLS successful
		C \nEPSV\r
		> \nEPSV\r$
		S \IAC\WILL227 (192,0,2,31,237,19)\r\n
		< \IAC\WILL227 (192,0,2,31,237,19)`, "auth_accepted"},
	{"AUTH refused, the next accepted", `
		c AUTH TLS
		> AUTH TLS
		c AUTH SSL
		> AUTH SSL
		s 504 Not this one
		< 504 Not this one
		c EPSV
		> EPSV
		s 334 More
		< 334 More
		c EPSV
		> EPSV`, "auth_accepted auth_refused"},
	{"AUTH refused in the middle of the next command", `
		c AUTH TLS
		> AUTH TLS
		c NOOP
		> NOOP
		C EPS
		> EPS$
		s 500 Unknown
		< 500 Unknown
		c V
		> V
		s 200 ok
		< 200 ok
		s 229 (|||7|)
		< 229 (|||7|)
		c EPSV
		> PASV`, "auth_refused"},
	{"AUTH behind an EPSV without a reply", `
		c EPSV
		> PASV
		c AUTH TLS
		> AUTH TLS
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)
		s 502 Unknown
		< 502 Unknown
		c EPSV
		> PASV`, "auth_refused epsv_translated"},
	{"AUTH while the gateway is off", `
		c ALGS DISABLE64
		> NOOP
		s 200 ok
		< 216 NONE
		c AUTH TLS
		> AUTH TLS
		s 234 ok
		< 234 ok
		c ALGS ENABLE64
		> ALGS ENABLE64`, "algs_answered auth_accepted"},

	// ALGS, section 11.
	{"ALGS", `
		c ALGS STATUS64
		> NOOP
		s 200 ok
		< 216 EPSVEPRT
		c algs disable64
		> NOOP
		s 200 ok
		< 216 NONE
		c EPSV
		> EPSV
		s 229 (|||60691|)
		< 229 (|||60691|)
		c EPSV ALL
		> EPSV ALL
		s 200 ok
		< 200 ok
		c EPSV 1
		> EPSV 1
		s 522 no
		< 522 no
		c EPRT |2|2001:db8:2::31|5282|
		> EPRT |2|2001:db8:2::31|5282|
		s 522 no
		< 522 no
		c ALGS STATUS64
		> NOOP
		s 200 ok
		< 216 NONE
		c ALGS ENABLE64
		> NOOP
		s 200 ok
		< 216 EPSVEPRT
		c EPSV
		> PASV`, "algs_answered"},
	{"ALGS without an argument", `
		c ALGS
		> NOOP
		s 200 ok
		< 504 Use ALGS with STATUS64, ENABLE64 or DISABLE64`, "algs_answered"},
	{"ALGS with another argument", `
		c ALGS ENABLE46
		> NOOP
		s 200 ok
		< 504 Use ALGS with STATUS64, ENABLE64 or DISABLE64`, "algs_answered"},

	// NOOP in place of commands, section 12.
	{"NOOP answered in several lines", `
		c ALGS STATUS64
		> NOOP
		s 200-I do
		s 200 nothing
		< 216 EPSVEPRT`, "algs_answered"},
	{"NOOP before login", `
		c ALGS STATUS64
		> NOOP
		s 530 Please login with USER and PASS.
		< 216 EPSVEPRT`, "algs_answered"},
	{"NOOP refused", `
		c ALGS STATUS64
		> NOOP
		s 502 Unknown
		< 421 Service not available, closing control connection
		end noop_refused`, "algs_answered"},
	{"NOOP lost", `
		c ALGS STATUS64
		> NOOP
		c EPSV
		> PASV
		s 227 (192,0,2,31,237,19)
		< 421 Service not available, closing control connection
		end noop_refused`, "algs_answered"},
	{"server closes instead of NOOP", `
		c EPSV 1
		> NOOP
		s 421 Timeout.
		< 421 Timeout.`, "epsv_unsupported"},
	{"NOOP of the client itself", `
		c NOOP
		> NOOP
		s 200 ok
		< 200 ok`, ""},

	// Order of replies.
	{"commands ahead of replies", `
		c USER anonymous
		> USER anonymous
		c EPSV
		> PASV
		c ALGS STATUS64
		> NOOP
		c EPSV
		> PASV
		s 331 Password
		< 331 Password
		S 227 (192,0,2,31,237,19)\r\n200 ok\r\n227 (192,0,2,31,237,20)\r\n
		< 229 Entering Extended Passive Mode (|||60691|)
		< 216 EPSVEPRT
		< 229 Entering Extended Passive Mode (|||60692|)`, "algs_answered epsv_translated"},
	{"preliminary reply does not end a command", `
		c RETR file
		> RETR file
		c EPSV
		> PASV
		s 150 Opening
		< 150 Opening
		s 226 Done
		< 226 Done
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},
	{"other codes inside a reply of several lines", `
		c HELP
		> HELP
		c EPSV
		> PASV
		s 214-Commands
		< 214-Commands
		s 227 (192,0,2,31,1,1)
		< 227 (192,0,2,31,1,1)
		s 215 nothing
		< 215 nothing
		s 214-more
		< 214-more
		s 214 Help ok
		< 214 Help ok
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},
	{"end of another reply inside a reply of several lines", `
		c HELP
		> HELP
		c ALGS STATUS64
		> NOOP
		s 214-Commands
		< 214-Commands
		s 215 nothing
		< 215 nothing
		s 214-more
		< 214-more
		s 214 Help ok
		< 214 Help ok
		s 200 ok
		< 216 EPSVEPRT`, "algs_answered"},
	{"reply that nobody asked for", `
		s 421 Timeout
		< 421 Timeout`, ""},
	{"lines that are no replies", `
		c SYST
		> SYST
		s
		<
		s hello
		< hello
		s 2150 no
		< 2150 no
		s 999 no
		< 999 no
		s 215
		< 215
		c EPSV
		> PASV
		s 227 (192,0,2,31,237,19)
		< 229 Entering Extended Passive Mode (|||60691|)`, "epsv_translated"},

	// What else is passed on, sections 5.1 and 10.
	{"commands with names in UTF-8 and escaped CR", `
		c RETR ä\r\0ö
		> RETR ä\r\0ö
		s 550 ä
		< 550 ä
		c LANG de
		> LANG de`, ""},
	{"longer words that begin alike", `
		c EPSVX
		> EPSVX
		c  EPSV
		>  EPSV
		c EPRTS |2|2001:db8:2::31|5282|
		> EPRTS |2|2001:db8:2::31|5282|
		c LPRT 6,16
		> LPRT 6,16`, ""},

	// Telnet, section 5 and RFC 1123 section 4.1.2.12.
	{"Telnet options of the client", `
		C \IAC\DO\0EP\IAC\WILL\nS\IAC\DONT\0V\IAC\WONT\0\r\n
		> PASV
		< \IAC\WONT\0\IAC\DONT\n$`, "telnet_refused"},
	{"Telnet options of the server", `
		c SYST
		> SYST
		S 21\IAC\WILL\05 Unix\IAC\SBanything\IAC\IAC\r\n\IAC\SE\r\n
		> \IAC\DONT\0$
		< 215 Unix`, "telnet_refused"},
	{"interrupt and synch", `
		c RETR file
		> RETR file
		C \IAC\IP\IAC\DM
		c ABOR
		> \IAC\IP\IAC\DMABOR
		C \IAC\IP
		c EPSV
		> PASV`, ""},
	{"doubled IAC, and a lone one in a name", `
		c STOR \IAC\IAC
		> STOR \IAC\IAC
		c STOR x\IACx\IAC
		> STOR x\IACx\IAC`, ""},
	{"other commands of Telnet", `
		C SY\IACñ
		c ST
		> SY\IACñST`, ""},
}
