// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
)

// write makes a file of subscribers.
func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subscribers.toml")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	testK   = "465b5ce8b199b49faa5f0a2ee238a6bc"
	testOPc = "cd63cb71954a9f4e48a5994e37a02baf"
	two     = `
[[subscriber]]
imsi = "001010123456789"
msisdn = "15550100"
private_id = "alice@ims.example"
public_ids = ["sip:Alice@IMS.example", "tel:+15550100"]
k = "` + testK + `"
opc = "` + testOPc + `"
sqn = "000000000020"
amf = "8000"
scscf = "sip:[2001:db8::5]:5060"
[[subscriber.apn]]
name = "internet"
types = ["ipv6"]
[[subscriber]]
private_id = "bob"
public_ids = "sip:bob@ims.example"
password = "one of bob's"
`
)

// TestRead reads subscribers, and finds them by each of their names.
func TestRead(t *testing.T) {
	f, err := Read(write(t, two, 0o640))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.All) != 2 {
		t.Fatalf("%d subscribers", len(f.All))
	}
	alice, bob := f.All[0], f.All[1]
	for name, got := range map[string]*Subscriber{
		"by IMSI": f.ByIMSI("001010123456789"), "by private identity": f.ByPrivateID("alice@ims.example"),
		"by public identity": f.ByPublicID("SIP:Alice@ims.example"), "by number": f.ByPublicID("tel:+15550100"),
	} {
		if got != alice {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, got := range map[string]*Subscriber{
		"of another user": f.ByPublicID("sip:alice@ims.example"), "by nothing": f.ByIMSI(""), "by no name": f.ByPrivateID(""),
	} {
		if got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if fmt.Sprintf("%x", [16]byte(*alice.K)) != testK || fmt.Sprintf("%x", [16]byte(*alice.OPc)) != testOPc {
		t.Error("the keys differ from the file's")
	}
	if alice.SQN != 0x20 || alice.AMF != [2]byte{0x80, 0} || alice.SCSCF != "sip:[2001:db8::5]:5060" || alice.MSISDN != "15550100" ||
		len(alice.APNs) != 1 || alice.APNs[0].Name != "internet" || fmt.Sprint(alice.APNs[0].Types) != "[ipv6]" || !alice.HasAKA() || alice.HasPassword() {
		t.Errorf("alice is %+v", alice)
	}
	if bob.Password != "one of bob's" || !bob.HasPassword() || bob.HasAKA() || bob.AMF != [2]byte{} {
		t.Errorf("bob is %+v", bob)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%x"} {
		for _, s := range f.All {
			if text := fmt.Sprintf(format, *s); strings.Contains(text, "one of") || strings.Contains(text, "465b5c") || strings.Contains(text, "6f6e65206f66") {
				t.Errorf("%s prints %s", format, text)
			}
		}
	}
}

// TestReadErrors says what is wrong with a file, at its line, and no secret with it.
func TestReadErrors(t *testing.T) {
	const alice = "[[subscriber]]\nprivate_id = \"alice\"\n"
	for _, tt := range []struct {
		name, text, line, want string
		mode                   os.FileMode
	}{
		{name: "open to others", text: two, mode: 0o644, want: "holds secrets"},
		{name: "nameless", text: "[[subscriber]]\n", line: ":1:", want: "nothing tells this subscriber"},
		{name: "without a proof", text: alice, line: ":2:", want: "nothing to prove"},
		{name: "a key too short", text: alice + `k = "c0ffee"`, line: ":3:", want: "not a key of 16 octets"},
		{name: "a key that is no hexadecimal", text: alice + `k = "c0ffeec0ffeec0ffeec0ffeec0ffee.."`, line: ":3:", want: "not a key of 16 octets"},
		{name: "K alone", text: alice + `k = "c0ffeec0ffeec0ffeec0ffeec0ffee00"`, line: ":3:", want: "takes OPc"},
		{name: "OPc alone", text: alice + `opc = "c0ffeec0ffeec0ffeec0ffeec0ffee00"`, line: ":1:", want: "takes K"},
		{name: "OP and OPc", text: alice + "op = \"c0ffeec0ffeec0ffeec0ffeec0ffee00\"\nopc = \"c0ffeec0ffeec0ffeec0ffeec0ffee00\"", line: ":3:", want: "both there"},
		{name: "a misspelt secret", text: alice + `pasword = "c0ffee"`, line: ":3:", want: "did you mean password"},
		{name: "a secret twice", text: alice + "password = \"c0ffee\"\nha1 = \"c0ffeec0ffeec0ffeec0ffeec0ffee00\"", line: ":3:", want: "a digest of it"},
		{name: "a digest too short", text: alice + `ha1_sha256 = "c0ffeec0ffeec0ffeec0ffeec0ffee00"`, line: ":3:", want: "not such a digest"},
		{name: "a secret in an inline table", text: `subscriber = [{ private_id = "a b", password = "c0ffee" }]`, line: ":1:", want: "private identity"},
		{name: "a secret that is no TOML", text: alice + "password = c0ffee\n", line: ":3:", want: "not TOML"},
		{name: "a secret on a line of its own", text: alice + "password = \"x\"\nc0ffee\n", line: ":4:", want: "not TOML"},
		{name: "an IMSI with letters", text: "[[subscriber]]\nimsi = \"00101x\"", line: ":2:", want: "is not an IMSI"},
		{name: "no sequence number", text: alice + `sqn = "12"`, line: ":3:", want: "12 hexadecimal digits"},
		{name: "no management field", text: alice + `amf = "zz00"`, line: ":3:", want: "4 hexadecimal digits"},
		{name: "no address of record", text: alice + `public_ids = ["sip:alice@ims.example", "alice@"]`, line: ":3:40", want: "is not an address of record"},
		{name: "no server", text: alice + `scscf = "ims"`, line: ":3:", want: "SIP URI of a server"},
		{name: "a type of address", text: alice + "password = \"x\"\n[[subscriber.apn]]\nname = \"a\"\ntypes = [\"ppp\"]", line: ":6:", want: "not known here"},
		{name: "an access point twice", text: alice + "password = \"x\"\n[[subscriber.apn]]\nname = \"a\"\n[[subscriber.apn]]\nname = \"A\"", line: ":7:", want: "there twice"},
		{name: "an access point without a name", text: alice + "password = \"x\"\n[[subscriber.apn]]\n", line: ":4:", want: "has no name"},
		{name: "addresses that no one can register", text: "[[subscriber]]\nimsi = \"001010123456789\"\npublic_ids = \"tel:+1555\"", line: ":3:", want: "no one can register"},
		{name: "an address of no host", text: alice + "password = \"x\"\n[[subscriber.apn]]\nname = \"a\"\naddress4 = \"10.1.2.0/24\"", line: ":6:", want: "not an IPv4 address"},
		{name: "a prefix of no link", text: alice + "password = \"x\"\n[[subscriber.apn]]\nname = \"a\"\nprefix6 = \"2001:db8::/56\"", line: ":6:", want: "is no /64"},
		{name: "an address of no type", text: alice + "password = \"x\"\n[[subscriber.apn]]\nname = \"a\"\ntypes = [\"ipv6\"]\naddress4 = \"10.1.2.3\"", line: ":7:", want: "no IPv4 by types"},
		{name: "a static address of two", text: alice + "password = \"x\"\n[[subscriber.apn]]\nname = \"a\"\naddress4 = \"10.1.2.3\"\n[[subscriber]]\nimsi = \"001010123456789\"\n[[subscriber.apn]]\nname = \"A\"\naddress4 = \"10.1.2.3\"", line: ":11:", want: "there twice"},
		{name: "an address of record of two", text: two + "[[subscriber]]\nprivate_id = \"carol\"\npassword = \"x\"\npublic_ids = \"sip:bob@IMS.EXAMPLE\"", line: ":22:", want: "there twice"},
		{name: "an IMSI of two", text: "[[subscriber]]\nimsi = \"001010123456789\"\n[[subscriber]]\nimsi = \"001010123456789\"", line: ":4:", want: "there twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.mode == 0 {
				tt.mode = 0o600
			}
			_, err := Read(write(t, tt.text, tt.mode))
			if err == nil {
				t.Fatal("no error")
			}
			text := err.Error()
			if !strings.Contains(text, "subscribers.toml"+tt.line) || !strings.Contains(text, tt.want) {
				t.Errorf("%s\nwant %q at %q", text, tt.want, tt.line)
			}
			if strings.Contains(text, "c0ffee") {
				t.Errorf("the error shows the secret:\n%s", text)
			}
		})
	}
}

// TestForms tries IMSIs and names of access points that may be, and that may not.
func TestForms(t *testing.T) {
	long := strings.Repeat("a", 99)
	for text, want := range map[string]bool{
		"001010": true, "001010123456789": true, "00101": false, "0010101234567890": false, "00101a": false, "a00101": false, "001 01": false, "٠٠١٠١٠": false,
	} {
		if _, f := imsi(text); (f == nil) != want {
			t.Errorf("the IMSI %q: %v", text, f.Err())
		}
	}
	for text, want := range map[string]bool{
		"a": true, "9": true, "a-b.C9": true, long: true, long + "a": false, "": false, "-a": false, "a.": false, "a b": false, "a_b": false, "ä": false, "aäb": false,
	} {
		if _, f := apnName(text); (f == nil) != want {
			t.Errorf("the access point %q: %v", text, f.Err())
		}
	}
}

// TestManySubscribers reads so many that nothing may look at all of them for each, behind a byte order mark.
func TestManySubscribers(t *testing.T) {
	const many = 20_000
	text := []byte("\xef\xbb\xbf")
	for i := range many {
		text = fmt.Appendf(text, "[[subscriber]]\nimsi = \"00101%010d\"\n[[subscriber.apn]]\nname = \"internet\"\n", i)
	}
	f, err := Read(write(t, string(text), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if last := fmt.Sprintf("00101%010d", many-1); len(f.All) != many || f.ByIMSI(last) == nil {
		t.Errorf("%d are read, the last of them is %v", len(f.All), f.ByIMSI(last))
	}
}

// TestManyFaults reads as many that are all wrong: the first hundred faults are told, and that there are more.
func TestManyFaults(t *testing.T) {
	_, err := Read(write(t, strings.Repeat("[[subscriber]]\nimsi = \"x\"\nshoe = 1\n", 20_000), 0o600))
	var faults config.Errors
	if !errors.As(err, &faults) || len(faults) != 101 || !strings.Contains(err.Error(), "there are more faults than these 100") {
		t.Errorf("%d faults are told", len(faults))
	}
}

// TestReference reads what people begin with.
func TestReference(t *testing.T) {
	text := strings.NewReplacer(`k = ""`, `k = "`+testK+`"`, `opc = ""`, `opc = "`+testOPc+`"`).Replace(Reference())
	if _, err := Read(write(t, text, 0o600)); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
