// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// Cause is the value of a Cause element (TS 29.060 section 7.7.1).
type Cause uint8

// Causes of requests.
const (
	CauseRequestIMSI           Cause = 0
	CauseRequestIMEI           Cause = 1
	CauseRequestIMSIAndIMEI    Cause = 2
	CauseNoIdentityNeeded      Cause = 3
	CauseMSRefusesRequest      Cause = 4
	CauseMSNotGPRSResponding   Cause = 5
	CauseReactivationRequested Cause = 6
	CausePDPInactivity         Cause = 7
)

// Causes of responses that accept.
const (
	CauseAccepted          Cause = 128
	CauseNewPDPTypeNetwork Cause = 129 // new PDP type due to network preference
	CauseNewPDPTypeSingle  Cause = 130 // new PDP type due to single address bearer only
)

// Causes of responses that reject.
const (
	CauseNonExistent              Cause = 192
	CauseInvalidMessageFormat     Cause = 193
	CauseIMSINotKnown             Cause = 194
	CauseMSDetached               Cause = 195
	CauseMSNotResponding          Cause = 196
	CauseMSRefuses                Cause = 197
	CauseVersionNotSupported      Cause = 198
	CauseNoResources              Cause = 199
	CauseServiceNotSupported      Cause = 200
	CauseMandatoryIncorrect       Cause = 201
	CauseMandatoryMissing         Cause = 202
	CauseOptionalIncorrect        Cause = 203
	CauseSystemFailure            Cause = 204
	CauseRoamingRestriction       Cause = 205
	CausePTMSISignature           Cause = 206
	CauseSuspended                Cause = 207
	CauseAuthenticationFailure    Cause = 208
	CauseUserAuthentication       Cause = 209
	CauseContextNotFound          Cause = 210
	CauseAddressesOccupied        Cause = 211
	CauseNoMemory                 Cause = 212
	CauseRelocationFailure        Cause = 213
	CauseUnknownExtensionHeader   Cause = 214
	CauseTFTSemantic              Cause = 215
	CauseTFTSyntax                Cause = 216
	CauseFilterSemantic           Cause = 217
	CauseFilterSyntax             Cause = 218
	CauseUnknownAPN               Cause = 219
	CauseUnknownPDPType           Cause = 220 // unknown PDP address or type
	CauseContextWithoutTFT        Cause = 221
	CauseAPNDenied                Cause = 222
	CauseAPNRestriction           Cause = 223
	CauseMBMSCapabilities         Cause = 224
	CauseInvalidCorrelationID     Cause = 225
	CauseMBMSSuperseded           Cause = 226
	CauseBearerControlMode        Cause = 227
	CauseCollision                Cause = 228 // collision with network initiated request
	CauseAPNCongestion            Cause = 229
	CauseBearerHandling           Cause = 230
	CauseTargetAccessRestricted   Cause = 231
	CauseTemporarilyNotReachable  Cause = 232
	CauseRelocationNASRedirection Cause = 233
)

// Accepted reports whether a response with the cause grants the request: 128 to 191.
func (c Cause) Accepted() bool { return c >= 128 && c < 192 }

var causeNames = map[Cause]string{
	CauseRequestIMSI:              "request IMSI",
	CauseRequestIMEI:              "request IMEI",
	CauseRequestIMSIAndIMEI:       "request IMSI and IMEI",
	CauseNoIdentityNeeded:         "no identity needed",
	CauseMSRefusesRequest:         "MS refuses",
	CauseMSNotGPRSResponding:      "MS is not GPRS responding",
	CauseReactivationRequested:    "reactivation requested",
	CausePDPInactivity:            "PDP address inactivity timer expires",
	CauseAccepted:                 "request accepted",
	CauseNewPDPTypeNetwork:        "new PDP type due to network preference",
	CauseNewPDPTypeSingle:         "new PDP type due to single address bearer only",
	CauseNonExistent:              "non-existent",
	CauseInvalidMessageFormat:     "invalid message format",
	CauseIMSINotKnown:             "IMSI not known",
	CauseMSDetached:               "MS is GPRS detached",
	CauseMSNotResponding:          "MS is not GPRS responding",
	CauseMSRefuses:                "MS refuses",
	CauseVersionNotSupported:      "version not supported",
	CauseNoResources:              "no resources available",
	CauseServiceNotSupported:      "service not supported",
	CauseMandatoryIncorrect:       "mandatory IE incorrect",
	CauseMandatoryMissing:         "mandatory IE missing",
	CauseOptionalIncorrect:        "optional IE incorrect",
	CauseSystemFailure:            "system failure",
	CauseRoamingRestriction:       "roaming restriction",
	CausePTMSISignature:           "P-TMSI signature mismatch",
	CauseSuspended:                "GPRS connection suspended",
	CauseAuthenticationFailure:    "authentication failure",
	CauseUserAuthentication:       "user authentication failed",
	CauseContextNotFound:          "context not found",
	CauseAddressesOccupied:        "all dynamic PDP addresses are occupied",
	CauseNoMemory:                 "no memory is available",
	CauseRelocationFailure:        "relocation failure",
	CauseUnknownExtensionHeader:   "unknown mandatory extension header",
	CauseTFTSemantic:              "semantic error in the TFT operation",
	CauseTFTSyntax:                "syntactic error in the TFT operation",
	CauseFilterSemantic:           "semantic errors in packet filter(s)",
	CauseFilterSyntax:             "syntactic errors in packet filter(s)",
	CauseUnknownAPN:               "missing or unknown APN",
	CauseUnknownPDPType:           "unknown PDP address or PDP type",
	CauseContextWithoutTFT:        "PDP context without TFT already activated",
	CauseAPNDenied:                "APN access denied, no subscription",
	CauseAPNRestriction:           "APN restriction incompatible with active contexts",
	CauseMBMSCapabilities:         "MS MBMS capabilities insufficient",
	CauseInvalidCorrelationID:     "invalid correlation-ID",
	CauseMBMSSuperseded:           "MBMS bearer context superseded",
	CauseBearerControlMode:        "bearer control mode violation",
	CauseCollision:                "collision with network initiated request",
	CauseAPNCongestion:            "APN congestion",
	CauseBearerHandling:           "bearer handling not supported",
	CauseTargetAccessRestricted:   "target access restricted for the subscriber",
	CauseTemporarilyNotReachable:  "UE is temporarily not reachable due to power saving",
	CauseRelocationNASRedirection: "relocation failure due to NAS message redirection",
}

// String returns the cause in words.
func (c Cause) String() string {
	if name, ok := causeNames[c]; ok {
		return name
	}
	return "unknown cause"
}
