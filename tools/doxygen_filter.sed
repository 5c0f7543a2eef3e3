# The first comment describes the file.
1s|^// ?|/// \\file\n/// |
# Headings between parts are not documentation.
s|^ *// ---.*||
s|^( *)//( .*)?$|\1///\2|
# A comment behind code belongs to that code.
s|^( *[^ /].*[^:/"])// |\1///< |
