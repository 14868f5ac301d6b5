"""The named secrets of the third set, as programs and configuration files write them.

A value is only what must not be read; its surroundings stay out of it.
"""

from __future__ import annotations

from benchmarks.planted_kinds import Kind


def _named(name: str, value: str, *contexts: str) -> Kind:
    return Kind(f"third_{name}", "secret", value, contexts)


WRITTEN: tuple[Kind, ...] = (
    _named(
        "python_literal",
        "«strong»",
        'PASSWORD = "§"',
        "self.api_secret = '§'",
        'DATABASES = {"default": {"USER": "«word»", "PASSWORD": "§"}}',
    ),
    _named(
        "python_call",
        "«human»",
        'connect(host="«host»", user="«word»", password="§")',
        'smtp.login("«email»", "§")',
        "requests.get(url, auth=('«word»', '§'))",
    ),
    _named(
        "python_environ", "«b62 40»", 'os.environ["«var»_API_KEY"] = "§"', 'os.environ.setdefault("«var»_SECRET", "§")'
    ),
    _named("python_default", "«b62 36»", 'API_KEY = os.getenv("«var»_API_KEY", "§")'),
    _named(
        "javascript_literal",
        "«strong»",
        "const dbPassword = '§';",
        "const config = { user: '«word»', password: '§', host: '«host»' };",
    ),
    _named(
        "javascript_fallback",
        "«b62 32»",
        "const secret = process.env.JWT_SECRET || '§';",
        'jwt.sign(payload, "§", { expiresIn: "1h" })',
    ),
    _named("typescript_header", "«b62 40»", "headers: { 'X-API-Key': '§', Accept: 'application/json' },"),
    _named(
        "go_literal", "«b62 32»", 'const apiKey = "§"', 'cfg := Config{ClientSecret: "§", Timeout: 5 * time.Second}'
    ),
    _named(
        "java_literal", "«strong»", 'private static final String DB_PASSWORD = "§";', 'dataSource.setPassword("§");'
    ),
    _named(
        "java_property_call",
        "«strong»",
        'System.setProperty("javax.net.ssl.keyStorePassword", "§");',
        'props.put("sasl.password", "§");',
    ),
    _named(
        "kafka_jaas",
        "«safe»",
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="«word»" '
        'password="§";',
    ),
    _named(
        "ruby_literal",
        "«strong»",
        "config.secret_key_base = '§'",
        "Mysql2::Client.new(host: '«host»', username: '«word»', password: '§')",
    ),
    _named("php_literal", "«strong»", "define('DB_PASSWORD', '§');", "$password = '§';", "'password' => '§',"),
    _named("wp_salt", "«odd 64»", "define('AUTH_KEY',         '§');", "define('SECURE_AUTH_SALT', '§');"),
    _named(
        "csharp_literal",
        "«strong»",
        'private const string ApiSecret = "§";',
        'var credential = new NetworkCredential("«word»", "§");',
    ),
    _named("rust_literal", "«b62 32»", 'const API_KEY: &str = "§";', 'let client_secret = "§".to_string();'),
    _named("powershell", "«strong»", "$pw = ConvertTo-SecureString '§' -AsPlainText -Force", "$env:SQL_PASSWORD = '§'"),
    _named(
        "windows_cmd",
        "«safe»",
        "set DB_PASSWORD=§",
        "net use Z: \\\\«word»\\share § /user:CORP\\«word»",
        "setx «var»_TOKEN §",
    ),
    _named("toml", "«strong»", '[database]\nuser = "«word»"\npassword = "§"\n', '[server]\nsecret_key = "§"\n'),
    _named("ini", "«safe»", "[client]\nuser=root\npassword=§\n", "[smtp]\nsmtp_password = §\n"),
    _named(
        "properties",
        "«safe»",
        "spring.datasource.password=§",
        "server.ssl.key-store-password=§",
        "keyPassword=§\nkeyAlias=upload\n",
    ),
    _named(
        "maven_settings",
        "«strong»",
        "<server>\n  <id>releases</id>\n  <username>«word»</username>\n  <password>§</password>\n</server>",
    ),
    _named(
        "xml_attribute",
        "«strong»",
        '<add key="SmtpPassword" value="§" />',
        '<Resource name="jdbc/«word»" username="«word»" password="§" />',
    ),
    _named(
        "plist", "«b62 36»", "<key>APIKey</key>\n<string>§</string>", "<key>clientSecret</key>\n\t<string>§</string>"
    ),
    _named(
        "yaml_nested", "«human»", "database:\n  host: «host»\n  credentials:\n    username: «word»\n    password: §\n"
    ),
    _named(
        "json_config",
        "«strong»",
        '{"host": "«host»", "username": "«word»", "password": "§", "pool": 10}',
        '"clientSecret": "§",',
    ),
    _named(
        "json_in_json", "«strong»", '{"body": "{\\"user\\": \\"«word»\\", \\"password\\": \\"§\\"}", "status": 200}'
    ),
    _named("json_three_deep", "«b62 40»", '{"a": "{\\"b\\": \\"{\\\\\\"api_key\\\\\\": \\\\\\"§\\\\\\"}\\"}"}'),
    _named(
        "aws_secret_string",
        "«strong»",
        '{"Name": "prod/db", "SecretString": "{\\"username\\":\\"«word»\\",\\"password\\":\\"§\\"}"}',
    ),
)
