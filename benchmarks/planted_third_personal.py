"""The personal data of the third set: what tells who a person is, where they live on a disk, and how to reach them."""

from __future__ import annotations

from benchmarks.planted_kinds import Kind


def _personal(name: str, value: str, *contexts: str) -> Kind:
    return Kind(f"third_{name}", "pii", value, contexts)


PII: tuple[Kind, ...] = (
    _personal(
        "email_plain", "«email»", "please mail § when it is done", "contact: §", '"email": "§",', "user § not found"
    ),
    _personal(
        "email_angle",
        "«email»",
        "From: «fullname» <§>",
        "Signed-off-by: «fullname» <§>",
        "Author: «fullname» <§>\nDate:   Mon",
    ),
    _personal("email_mailto", "«email»", '<a href="mailto:§?subject=hi">write</a>', "[mail me](mailto:§)"),
    _personal("email_plus", "«user»+«word»@«domain»", "recipient=§ status=sent", "To: §"),
    _personal("email_subdomain", "«user»_«num 2»@mail.«word».«domain»", "bounce from §: 550", "  - §\n"),
    _personal("email_upper", "«up 8».«up 7»@«up 9».COM", "OWNER: §", "uid=§,ou=people"),
    _personal(
        "email_url_encoded", "«user»%40«domain»", "GET /users?email=§&page=1 HTTP/1.1", "https://«host»/reset?user=§"
    ),
    _personal("email_words", "«user» [at] «user»-«word» [dot] com", "you can reach me: §", "Mail: §"),
    _personal(
        "email_sql", "«email»", "INSERT INTO users (id, email) VALUES («num 3», '§');", " «num 4» | «user» | § | t\n"
    ),
    _personal("email_csv", "«email»", "id,name,email,active\n«num 2»,«fullname»,§,true\n"),
    _personal(
        "email_trailer", "«email»", "Fix «word»\n\nCo-authored-by: «fullname» <§>", "Reviewed-by: «fullname» <§>"
    ),
    _personal(
        "email_git_config",
        "«email»",
        "git config --global user.email §",
        "[user]\n\tname = «user»\n\temail = §\n",
        "user.email=§",
    ),
    _personal(
        "email_package", "«email»", '"author": "«fullname» <§> (https://«domain»)",', 'authors = ["«fullname» <§>"]'
    ),
    _personal("email_codeowners", "«email»", "*.py    §\n/docs/  @«word»/docs\n"),
    _personal("email_assertion", "«email»", "AssertionError: expected '§' to equal null", 'KeyError: "§"'),
    _personal("email_umlaut_name", "«email de»", "Von: Jürgen Müller <§>", "Kontakt: §"),
    _personal("email_smtp", "«email»", "RCPT TO:<§>\n250 OK", "MAIL FROM:<§> SIZE=1204"),
    _personal("email_escaped", "«email»", '{"log": "{\\"to\\": \\"§\\", \\"ok\\": true}"}', "\\n§\\n"),
    _personal("ip_access_log", "«ip»", '§ - - [12/Mar/2026:08:14:02 +0000] "GET /«word» HTTP/1.1" 200 «num 4»'),
    _personal(
        "ip_ssh",
        "«ip»",
        "ssh deploy@§",
        "Accepted publickey for root from § port «num 5» ssh2",
        "Last login: Tue Mar  3 08:11:45 2026 from §",
    ),
    _personal("ip_forwarded", "«ip»", "X-Forwarded-For: §, 10.0.0.2", '"remote_addr": "§",', "X-Real-IP: §"),
    _personal("ip_curl", "«ip»", "* Connected to «host» (§) port 443", "*   Trying §:443..."),
    _personal("ip_hosts", "«ip»", "§  «host» «word»\n", "«host»,§ ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI«b64 43»"),
    _personal("ip_url", "«ip»", "curl http://§:8080/healthz", "server: https://§:6443\n"),
    _personal("ip_dig", "«ip»", "«domain».\t300\tIN\tA\t§", "PING «host» (§) 56(84) bytes of data."),
    _personal("ip6_full", "«ip6»", "client § connected", "inet6 §/64 scope global dynamic"),
    _personal("ip6_bracket", "«ip6 short»", "http://[§]:8080/", "listening for peer [§]:«port»"),
    _personal(
        "phone_us", "(«of 212|312|415|503|617|718») «num 1 2-9»«num 2»-«num 4»", "call me at § after six", "Phone: §"
    ),
    _personal("phone_us_dashes", "«of 212|312|415|503|617|718»-«num 1 2-9»«num 2»-«num 4»", "tel. §", "My cell is §."),
    _personal(
        "phone_e164",
        "+1«of 212|312|415|503|617»«num 1 2-9»«num 6»",
        '"phone": "§"',
        'To: "§", From: twilioNumber',
        "sms sent to §",
    ),
    _personal("phone_uk", "+44 7«num 3» «num 6»", "Mobile: §", "ring § for access"),
    _personal("phone_de", "+49 «of 30|40|89|151|172» «num 7»", "Telefon: §", "Tel.: §, Fax: -"),
    _personal("phone_fr", "+33 6 «num 2» «num 2» «num 2» «num 2»", "Tél. §", "joignable au §"),
    _personal("phone_in", "+91 9«num 4» «num 5»", "WhatsApp: §", "mobile no. §"),
    _personal("phone_jp", "+81-90-«num 4»-«num 4»", "電話: §", '"tel": "§"'),
    _personal("phone_br", "+55 («of 11|21|31») 9«num 4»-«num 4»", "Celular: §", "telefone §"),
    _personal("phone_au", "+61 4«num 2» «num 3» «num 3»", "phone: §", "text me on §"),
    _personal("phone_tel_link", "+1-«of 212|415|617»-«num 1 2-9»«num 2»-«num 4»", '<a href="tel:§">call</a>'),
    _personal(
        "home_linux",
        "«user»",
        "cd /home/§/src/«word»",
        "/home/§/.local/bin/«word»: not found",
        'File "/home/§/app/main.py", line «num 2»',
    ),
    _personal(
        "home_mac",
        "«user»",
        "/Users/§/Library/Caches/«word»",
        "at Object.<anonymous> (/Users/§/dev/«word»/index.js:«num 2»:5)",
    ),
    _personal(
        "home_windows",
        "«user»",
        "C:\\Users\\§\\AppData\\Local\\«word»",
        "PS C:\\Users\\§> dir",
        '"C:\\\\Users\\\\§\\\\code"',
    ),
    _personal("home_mixed", "«user»", "/c/Users/§/«word»", "/mnt/c/Users/§/code/«word»", "file:///C:/Users/§/x.html"),
    _personal("home_uri", "«user»", "file:///Users/§/«word»/index.html", "vscode://file/home/§/«word».ts:12"),
    _personal(
        "home_dashed",
        "«user»",
        "~/.claude/projects/-Users-§-code-«word»/«uuid».jsonl",
        ".claude/projects/-home-§-src/memory",
    ),
    _personal(
        "git_author",
        "«fullname»",
        "Author: § <«email»>\nDate:   Tue Mar 3",
        "Co-authored-by: § <«email»>",
        "git config user.name '§'",
    ),
    _personal("card_visa", "«luhn 4,16»", "card number § exp 09/28", '"pan": "§",', "cc=§&cvv=«num 3»"),
    _personal("card_grouped", "«luhn 4,16, »", "Card: §", "paid with § yesterday"),
    _personal("card_dashed", "«luhn 53,16,-»", "mastercard §", "| card | § |"),
    _personal("card_amex", "«luhn 37,15, »", "Amex § declined", "card: §"),
    _personal("iban_de", "«iban DE»", "IBAN: §", "überweise bitte an §", '"iban": "§"'),
    _personal("iban_spaced", "«iban GB,x»", "IBAN §", "Account: §"),
    _personal("iban_nl", "«iban NL»", "iban=§", "rekening §"),
    _personal("iban_fr", "«iban FR,x»", "RIB / IBAN : §"),
    _personal(
        "ssn",
        "«num 1 1-8»«num 2»-«num 1 1-9»«num 1»-«num 1 1-9»«num 3»",
        "SSN: §",
        "ssn=§",
        "social security number is §",
        '"ssn": "§"',
    ),
    _personal("cpf", "«cpf»", "CPF: §", '"cpf": "§"'),
)
