// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// Subscriber is one subscription. Its secrets do not print.
type Subscriber struct {
	IMSI   string // 6 to 15 digits; empty: nothing of a mobile network
	MSISDN string // the number to dial, without +
	// PrivateID is the name in digests (IMPI); PublicIDs are the addresses of record (IMPU), of
	// which the first is the one that stands for all.
	PrivateID string
	PublicIDs []string
	// K and OPc are the keys of AKA, all of them or none. SQN is the sequence number to begin
	// at, AMF the field in challenges.
	K, OP, OPc *Key
	SQN        uint64
	AMF        [2]byte
	// Password, or what is made of it for one realm: HA1 with MD5 and with SHA-256, in hex.
	Password       config.Secret
	HA1, HA1SHA256 config.Secret
	// SCSCF is the SIP URI of the server that serves the subscriber; empty: any.
	SCSCF string
	// APNs are the networks that the subscriber may use; none: all.
	APNs []APN
}

// APN is one network that a subscriber may use, with the types of address there.
type APN struct {
	Name           string
	Types          []string
	MaxUp, MaxDown int // kbit/s
	// Address4 and Prefix6, a /64, are the subscriber's alone; not valid: any.
	Address4 netip.Addr
	Prefix6  netip.Prefix
}

// maxRate is the highest that a profile can say, in kbit/s (TS 24.008 section 10.5.6.5).
const maxRate = 10_000_000

// Types of address.
const (
	IPv4   = "ipv4"
	IPv6   = "ipv6"
	IPv4v6 = "ipv4v6"
)

// HasAKA reports whether the subscriber has the keys of AKA.
func (s *Subscriber) HasAKA() bool { return s.K != nil }

// HasPassword reports whether the subscriber has a password, or a digest of it.
func (s *Subscriber) HasPassword() bool { return s.Password != "" || s.HA1 != "" || s.HA1SHA256 != "" }

func (s *Subscriber) keys() []key.Key {
	return []key.Key{
		key.Of("imsi", &s.IMSI, key.Example("001010123456789"), optionalIMSI, key.Identity,
			"International mobile subscriber identity, 6 to 15 digits (TS 23.003, section 2.2). This or private_id must be set."),
		key.Of("msisdn", &s.MSISDN, "", optionalMSISDN, key.Live, "Number to dial, up to 15 digits without +."),
		key.Of("private_id", &s.PrivateID, "", optionalPrivateID, key.Live,
			`Name by which the subscriber proves who it is: "alice@ims.example" (TS 23.003, section 13.3), or a plain name.`),
		key.Of("public_ids", &s.PublicIDs, []string{}, publicIDs, key.Live,
			`Addresses of record: ["sip:alice@ims.example", "tel:+15550100"]. The first is the one that stands for all.`),
		key.Of("k", &s.K, "", optionalKey, key.Live, "Key K of AKA, 32 hexadecimal digits.").Hidden(),
		key.Of("op", &s.OP, "", optionalKey, key.Live, "The operator's OP, of which OPc is made. In place of opc.").Hidden(),
		key.Of("opc", &s.OPc, "", optionalKey, key.Live, "OPc (TS 35.206, section 4.1).").Hidden(),
		key.Of("sqn", &s.SQN, "000000000000", sequenceNumber, key.Live, "Sequence number to begin at, 12 hexadecimal digits. The server keeps count."),
		key.Of("amf", &s.AMF, "0000", managementField, key.Live, "Authentication management field, 4 hexadecimal digits."),
		key.Of("password", &s.Password, "", optionalPassword, key.Live, "Password of digests.").Hidden(),
		key.Of("ha1", &s.HA1, "", optionalMD5, key.Live, "MD5 of private_id:realm:password, in place of it.").Hidden(),
		key.Of("ha1_sha256", &s.HA1SHA256, "", optionalSHA256, key.Live, "The same with SHA-256.").Hidden(),
		key.Of("scscf", &s.SCSCF, "", optionalURI, key.Live, `S-CSCF that serves the subscriber: "sip:scscf.ims.example:5060". Empty: any.`),
		key.Tables("apn", &s.APNs, "access point", `{ name = "internet" }`, (*APN).keys, key.Live,
			"Networks that the subscriber may use. None: all. A section for each."),
	}
}

func (a *APN) keys() []key.Key {
	return []key.Key{
		key.Of("name", &a.Name, key.MustSet("internet"), apnName, key.Identity, "Its name (TS 23.003, section 9.1)."),
		key.Of("types", &a.Types, []string{}, apnTypes, key.Live, `Of "ipv4", "ipv6", "ipv4v6". Empty: all that the access point has.`),
		key.Of("max_up", &a.MaxUp, 0, rate, key.Live, "The highest rate from the terminal by a context there, in kbit/s, also where the access point has a higher one. 0: that."),
		key.Of("max_down", &a.MaxDown, 0, rate, key.Live, "The same to the terminal."),
		key.Of("address4", &a.Address4, "", optionalAddress, key.Live, "The IPv4 address that contexts there have, and no one else: of the access point's static4. Empty: any."),
		key.Of("prefix6", &a.Prefix6, "", optionalPrefix, key.Live, "The same of IPv6: a /64 of static6."),
	}
}

// section declares the sections of the file.
var section = config.SectionOf[Subscriber]{
	Name: "subscriber", Help: "One subscription.", Keys: (*Subscriber).keys, Check: (*Subscriber).check,
}
